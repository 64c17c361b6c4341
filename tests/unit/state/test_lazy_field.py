# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Documents in a stored value that are parsed when they are needed. `test_codec.py` tests them in records."""

import pytest

from cni_bridge_spec import JsonError, JsonObject, render_json
from cni_bridge_state.lazy_field import StoredDocument
from cni_bridge_state.stored_value import join_lines


def stored(text: str) -> StoredDocument:
    """Return a document whose stored value has no other line."""
    return StoredDocument(join_lines([text.encode()]), 1)


def test_a_document_is_an_object_or_null() -> None:
    """Any other value is an error that names the mistake; a stored value is validated when it is written."""
    assert stored('{"cniVersion":"1.0.0"}').parse() == {"cniVersion": "1.0.0"}
    assert stored("{}").parse() == {}
    assert stored("null").parse() is None
    with pytest.raises(JsonError, match="a stored document must be an object"):
        stored("[]").parse()


def test_only_recent_documents_are_kept() -> None:
    """Those of all endpoints would take several times the memory of their texts."""
    first = stored('{"number":0}')
    before = first.parse()
    assert first.parse() is before
    for number in range(1, 1000):
        stored(f'{{"number":{number}}}').parse()
    assert first.parse() == before
    assert first.parse() is not before


def test_a_document_that_was_stored_is_not_parsed() -> None:
    """The record that has been stored gives the very document."""
    document: JsonObject = {"name": "stored", "routes": []}
    value = join_lines([render_json(document)])
    assert StoredDocument.made_of(document, value, 1).parse() is document
    assert StoredDocument.made_of(None, join_lines([b"null"]), 1).parse() is None
