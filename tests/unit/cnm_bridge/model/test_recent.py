# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a pure function returned for its most recent documents is remembered, and no more of it."""

from cni_bridge_spec import JsonObject
from cnm_bridge.model.recent import Same, recently


def test_a_document_is_equal_to_itself_only() -> None:
    """Comparing the content would take as long as reading it; and no other document is taken for it."""
    document: JsonObject = {"cniVersion": "1.0.0"}
    assert Same(document) == Same(document)
    assert hash(Same(document)) == hash(Same(document))
    assert Same(document) != Same(dict(document))
    assert Same(document) != Same({})
    assert Same(document) != document


def test_the_most_recent_are_remembered() -> None:
    """An endpoint's calls follow each other. After those of many others, its documents are not in memory any more."""
    read: list[int] = []

    @recently
    def name_of(key: Same) -> object:
        read.append(len(read))
        return key.document["name"]

    documents: list[JsonObject] = [{"name": str(number)} for number in range(1000)]
    assert [name_of(Same(document)) for document in documents for _ in range(3)] == [
        document["name"] for document in documents for _ in range(3)
    ]
    assert len(read) == len(documents)
    assert name_of(Same(documents[-1])) == "999"
    assert len(read) == len(documents)
    assert name_of(Same(documents[0])) == "0"
    assert len(read) == len(documents) + 1
