# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Versions of the CNI specification: their order, and the versions that a list offers."""

import pytest

from cni_invoker.documents.versions import (
    SUPPORTED_VERSIONS,
    VersionInfo,
    is_at_least,
    offered_versions,
    parse_version,
    parse_version_info,
    require_supported,
)
from cni_invoker.errors import BadResult, InvalidParameter, VersionUnsupported


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


def test_an_empty_version_is_0_1_0() -> None:
    """A document without a version has 0.1.0."""
    assert parse_version("") == (0, 1, 0)


@pytest.mark.parametrize(
    "version",
    ["asdfasdf", "asdf.", ".asdfas", "asdf.adsf.", "0.", "..", "1.2.3.4.5", "1.0.f", "1.0.0\n", "-1", "9" * 5000],
)
def test_malformed_versions_are_rejected(version: str) -> None:
    """A malformed version is rejected with code 1 (incompatible CNI version)."""
    with pytest.raises(InvalidParameter) as caught:
        parse_version(version)
    assert caught.value.code == 1


@pytest.mark.parametrize(
    ("cni_version", "cni_versions", "offered"),
    [
        ("", ["1.1.0", "0.4.0", "1.0.0"], ("1.1.0", "1.0.0", "0.4.0")),
        ("", ["1.0.0", "99.0.0"], ("1.0.0",)),
        ("1.0.0", ["0.4.0", "1.0.0"], ("1.0.0", "0.4.0")),
        ("0.3.1", ["0.4.0"], ("0.4.0", "0.3.1")),
        ("", [], ("0.1.0",)),
        ("0.4.0", [], ("0.4.0",)),
        ("", None, ("0.1.0",)),
        ("1.0.0", None, ("1.0.0",)),
        ("1.2.3", None, ("1.2.3",)),
    ],
)
def test_offered_versions_are_the_known_ones_of_both_keys(
    cni_version: str, cni_versions: list[str] | None, offered: tuple[str, ...]
) -> None:
    """`cniVersion` and `cniVersions` are merged, newest first, without unknown versions; a single one is kept."""
    assert offered_versions(cni_version, cni_versions) == offered


def test_one_malformed_version_invalidates_the_list() -> None:
    """It does so even if another version would be chosen."""
    with pytest.raises(InvalidParameter):
        offered_versions("", ["1.1.0", "0.4.0", "1.0.f"])
    with pytest.raises(InvalidParameter):
        offered_versions("broken", None)


def test_only_unknown_versions_are_rejected() -> None:
    """The error lists the versions offered, and those supported."""
    with pytest.raises(VersionUnsupported) as caught:
        offered_versions("2.1.0", ["2.0.0"])
    assert caught.value.code == 1
    assert "2.0.0, 2.1.0" in str(caught.value)
    assert "1.1.0" in str(caught.value)


def test_supported_versions_are_in_ascending_order() -> None:
    """`require_supported` accepts them, and rejects others."""
    assert list(SUPPORTED_VERSIONS) == sorted(SUPPORTED_VERSIONS, key=parse_version)
    require_supported("1.1.0")
    with pytest.raises(VersionUnsupported):
        require_supported("1.2.3")


def test_version_info_keeps_the_order_of_the_plugin() -> None:
    """Unknown versions and keys are accepted."""
    answer = b'{"cniVersion": "1.0.0", "supportedVersions": ["0.2.0", "0.999.0"], "x": 1}'
    assert parse_version_info(answer) == VersionInfo(cni_version="1.0.0", supported=("0.2.0", "0.999.0"))


def test_version_info_of_0_2_0_needs_no_list() -> None:
    """The first plugins with VERSION printed no supportedVersions."""
    assert parse_version_info(b'{"cniVersion": "0.2.0"}').supported == ("0.1.0", "0.2.0")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"{{{", "line 1, column 2"),
        (b"", "line 1, column 1"),
        (b"[]", "must be an object"),
        (b'{"supportedVersions": ["foo"]}', "missing field cniVersion"),
        (b'{"cniVersion": ""}', "missing field cniVersion"),
        (b'{"cniVersion": "1.0.0"}', "missing field supportedVersions"),
        (b'{"cniVersion": "1.0.0", "supportedVersions": [1]}', r"supportedVersions\[0\] must be a string"),
    ],
)
def test_invalid_version_info_is_rejected_with_the_reason(answer: bytes, reason: str) -> None:
    """The error names the field, or line and column."""
    with pytest.raises(BadResult, match=f"^bad CNI result: decoding version info: .*{reason}"):
        parse_version_info(answer)
