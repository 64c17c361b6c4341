# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Values that must differ between two containers are replaced by their roles."""

from tests.alike.roles import flatten, link_local, replace_values


def test_whole_words_are_replaced() -> None:
    """In keys and values, longer ones first, and never a part of a longer address or name."""
    roles = {"10.91.1.2": "own", "10.91": "NET", "box": "NAME", "": "nothing"}
    view = {"route to 10.91.1.2": "10.91.1.20 ::ffff:10.91.1.2", "box": "boxes box-2 box"}
    assert replace_values(view, roles) == {"route to own": "NET.1.20 ::ffff:own", "NAME": "boxes NAME-2 NAME"}


def test_documents_become_texts() -> None:
    """Objects by their keys, lists by what they have; what is empty or null is an empty text."""
    document = {"a": {"b": 1, "c": None, "d": {}}, "e": ["x", "y"], "f": [{"g": True}], "h": []}
    assert flatten(document, "D") == {
        "D.a.b": "1",
        "D.a.c": "",
        "D.a.d": "",
        "D.e has x": "yes",
        "D.e has y": "yes",
        "D.f.0.g": "True",
        "D.h": "",
    }


def test_the_link_local_address_of_a_mac() -> None:
    """The second bit of the MAC is inverted, and ff:fe is in the middle."""
    assert link_local("02:42:0a:5b:01:02") == "fe80::42:aff:fe5b:102"
