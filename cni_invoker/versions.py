# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Versions of the CNI specification: which there are, which is newer, and which one a list is spoken in."""

import re
from collections.abc import Sequence
from typing import Final

from cni_invoker.errors import InvalidParameter, VersionUnsupported

__all__ = ["SUPPORTED_VERSIONS", "is_at_least", "parse_version", "require_supported", "select_version"]

SUPPORTED_VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""The versions this runtime speaks, oldest first."""

_IMPLIED: Final = "0.1.0"
"""What a document without a version has: the first specification had no field for it."""

_VERSION: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")
_BAD_VERSION: Final = 1


def parse_version(version: str) -> tuple[int, int, int]:
    """Return a version (`1.0.0`, `1.0` or `1`) as numbers that can be compared; an empty one is 0.1.0.

    Raises:
        InvalidParameter: It is no version.
    """
    match = _VERSION.fullmatch(version or _IMPLIED)
    if match is None:
        raise InvalidParameter("CNI version", version, "it is not of the form 1.0.0", code=_BAD_VERSION)
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def is_at_least(version: str, minimum: str) -> bool:
    """Return whether `version` is `minimum` or newer."""
    return parse_version(version) >= parse_version(minimum)


def require_supported(version: str) -> None:
    """Raise `VersionUnsupported` if this runtime does not speak `version`."""
    if version not in SUPPORTED_VERSIONS:
        raise VersionUnsupported(version, SUPPORTED_VERSIONS)


def select_version(cni_version: str, cni_versions: Sequence[str] | None) -> str:
    """Return the version a network configuration list asks for, without asking its plugins what they speak.

    With `cniVersions` it is the newest of both keys that this runtime speaks too; without, `cniVersion` as it is, even
    if nobody knows it (CNI SPEC §1 "Version considerations", and libcni's `NetworkConfFromBytes`).

    Args:
        cni_version: The key `cniVersion`, empty if there is none.
        cni_versions: The key `cniVersions`, None if there is none.

    Raises:
        InvalidParameter: One of them is no version.
        VersionUnsupported: All that `cniVersions` offers is newer than what this runtime speaks.
    """
    offered = [version for version in (*(cni_versions or ()), cni_version) if version]
    numbers = {version: parse_version(version) for version in offered}
    if cni_versions is None or not offered:
        return cni_version or _IMPLIED
    newest = parse_version(SUPPORTED_VERSIONS[-1])
    spoken = [version for version in offered if numbers[version] <= newest]
    if not spoken:
        raise VersionUnsupported(", ".join(offered), SUPPORTED_VERSIONS)
    return max(spoken, key=parse_version)
