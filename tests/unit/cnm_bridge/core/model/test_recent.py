# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a pure function returned for its most recent documents is remembered, and no more of it."""

from cni_bridge_spec import JsonObject
from cnm_bridge.core.model.recent import RecentDocuments, Same, recently


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


def test_a_document_is_read_once() -> None:
    """The same document gives the same typed form; an equal one is another document."""
    recent = RecentDocuments[dict[str, int]](lambda document: {"keys": len(document)})
    document: JsonObject = {"a": 1}
    assert recent.typed(document) is recent.typed(document)
    assert recent.typed({"a": 1}) is not recent.typed(document)


def test_a_document_that_was_made_here_is_not_read() -> None:
    """What it was made from is its typed form."""

    def refuse(document: JsonObject) -> str:
        raise AssertionError(document)

    recent = RecentDocuments[str](refuse)
    document: JsonObject = {"a": 1}
    recent.note(document, "typed")
    assert recent.typed(document) == "typed"


def test_the_most_recent_documents_are_kept() -> None:
    """The memory does not grow; one that is used again stays longer than those that are not."""
    read: list[JsonObject] = []

    def note(document: JsonObject) -> int:
        read.append(document)
        return len(read)

    recent = RecentDocuments[int](note)
    documents: list[JsonObject] = [{"number": number} for number in range(65)]
    for document in documents[:64]:
        recent.typed(document)
    recent.typed(documents[0])
    recent.typed(documents[64])
    del read[:]
    recent.typed(documents[0])
    assert read == []
    recent.typed(documents[1])
    assert read == [documents[1]]
