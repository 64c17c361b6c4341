# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Versions of the CNI specification: their order, and which one of a list is chosen."""

import pytest

from cni_invoker.errors import InvalidParameter, VersionUnsupported
from cni_invoker.versions import (
    SUPPORTED_VERSIONS,
    is_at_least,
    parse_version,
    require_supported,
    select_version,
)


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("1.2.34", "1.2.14"),
        ("2.5.4", "2.4.4"),
        ("1.2.3", "0.2.3"),
        ("0.4.0", "0.3.1"),
        ("1.10.0", "1.9.0"),
        ("1", "0.9"),
    ],
)
def test_versions_compare_as_numbers(newer: str, older: str) -> None:
    """A version is compared part by part, and each part as a number."""
    assert is_at_least(newer, older)
    assert is_at_least(newer, newer)
    assert not is_at_least(older, newer)


def test_no_version_is_the_first() -> None:
    """A document without a version is of 0.1.0."""
    assert parse_version("") == (0, 1, 0)


@pytest.mark.parametrize(
    "version",
    ["asdfasdf", "asdf.", ".asdfas", "asdf.adsf.", "0.", "..", "1.2.3.4.5", "1.0.f", "1.0.0\n", "-1", "9" * 5000],
)
def test_malformed_versions(version: str) -> None:
    """What is no version is refused, with the code of an incompatible version (1)."""
    with pytest.raises(InvalidParameter) as caught:
        parse_version(version)
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("cni_version", "cni_versions", "selected"),
    [
        ("", ["1.1.0", "0.4.0", "1.0.0"], "1.1.0"),
        ("", ["1.0.0", "99.0.0"], "1.0.0"),
        ("1.0.0", ["0.4.0"], "1.0.0"),
        ("0.3.1", ["0.4.0"], "0.4.0"),
        ("", [], "0.1.0"),
        ("0.4.0", [], "0.4.0"),
        ("", None, "0.1.0"),
        ("1.0.0", None, "1.0.0"),
        ("1.2.3", None, "1.2.3"),
    ],
)
def test_selection(cni_version: str, cni_versions: list[str] | None, selected: str) -> None:
    """The newest offered version that is known wins; a single one is taken as it is."""
    assert select_version(cni_version, cni_versions) == selected


def test_selection_among_malformed_versions() -> None:
    """One malformed version spoils the list, even if another one would be chosen."""
    with pytest.raises(InvalidParameter):
        select_version("", ["1.1.0", "0.4.0", "1.0.f"])
    with pytest.raises(InvalidParameter):
        select_version("broken", None)


def test_selection_among_versions_of_the_future() -> None:
    """A list that offers only what nobody knows is refused with what is known."""
    with pytest.raises(VersionUnsupported) as caught:
        select_version("2.1.0", ["2.0.0"])
    assert caught.value.code == 1
    assert "2.0.0, 2.1.0" in str(caught.value)
    assert "1.1.0" in str(caught.value)


def test_supported_versions_are_in_order() -> None:
    """The supported versions are given oldest first."""
    assert list(SUPPORTED_VERSIONS) == sorted(SUPPORTED_VERSIONS, key=parse_version)
    require_supported("1.1.0")
    with pytest.raises(VersionUnsupported):
        require_supported("1.2.3")
