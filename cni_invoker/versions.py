# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Versions of the CNI specification: which there are, which is newer, and who speaks which."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cni_invoker.codes import ErrorCode
from cni_invoker.errors import InvalidParameter, VersionUnsupported
from cni_invoker.plugin_errors import BadResult
from spec import JsonError, as_object, find_str, get_strings, parse_json

__all__ = [
    "ONLY_THE_FIRST",
    "SUPPORTED_VERSIONS",
    "VersionInfo",
    "is_at_least",
    "offered_versions",
    "parse_version",
    "parse_version_info",
    "require_supported",
]

SUPPORTED_VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""The versions this runtime speaks, oldest first."""

_IMPLIED: Final = "0.1.0"
"""What a document without a version has: the first specification had no field for it."""

_VERSION: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")


def parse_version(version: str) -> tuple[int, int, int]:
    """Return a version (`1.0.0`, `1.0` or `1`) as numbers that can be compared; an empty one is 0.1.0.

    Raises:
        InvalidParameter: It is no version.
    """
    match = _VERSION.fullmatch(version or _IMPLIED)
    if match is None:
        raise InvalidParameter(
            "CNI version", version, "it is not of the form 1.0.0", code=ErrorCode.INCOMPATIBLE_VERSION
        )
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def is_at_least(version: str, minimum: str) -> bool:
    """Return whether `version` is `minimum` or newer."""
    return parse_version(version) >= parse_version(minimum)


def require_supported(version: str) -> None:
    """Raise `VersionUnsupported` if this runtime does not speak `version`."""
    if version not in SUPPORTED_VERSIONS:
        raise VersionUnsupported(version, SUPPORTED_VERSIONS)


def offered_versions(cni_version: str, cni_versions: Sequence[str] | None) -> tuple[str, ...]:
    """Return the versions a network configuration list may be spoken in, as far as it decides, newest first.

    With `cniVersions` these are all of both keys that are not newer than what this runtime speaks; without,
    `cniVersion` as it is, even if nobody knows it (CNI SPEC §1 "Version considerations", and libcni's
    `NetworkConfFromBytes`, which takes the first of them).

    Args:
        cni_version: The key `cniVersion`, empty if there is none.
        cni_versions: The key `cniVersions`, None if there is none.

    Raises:
        InvalidParameter: One of them is no version.
        VersionUnsupported: All that `cniVersions` offers is newer than what this runtime speaks.
    """
    offered = [version for version in dict.fromkeys((*(cni_versions or ()), cni_version)) if version]
    numbers = {version: parse_version(version) for version in offered}
    if cni_versions is None or not offered:
        return (cni_version or _IMPLIED,)
    newest = parse_version(SUPPORTED_VERSIONS[-1])
    spoken = [version for version in offered if numbers[version] <= newest]
    if not spoken:
        raise VersionUnsupported(", ".join(offered), SUPPORTED_VERSIONS)
    return tuple(sorted(spoken, key=parse_version, reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionInfo:
    """What a plugin answers to VERSION.

    Attributes:
        cni_version: The version of the answer.
        supported: The versions it speaks, in its own order.
    """

    cni_version: str
    supported: tuple[str, ...]


ONLY_THE_FIRST: Final = VersionInfo(cni_version=_IMPLIED, supported=(_IMPLIED,))
"""What a plugin speaks that does not know VERSION: it came with 0.2.0."""


def parse_version_info(stdout: bytes) -> VersionInfo:
    """Return what a plugin has printed for VERSION (CNI SPEC §5 "VERSION Success").

    Raises:
        BadResult: It is no answer to VERSION.
    """
    try:
        answer = as_object(parse_json(stdout), "it")
        cni_version = find_str(answer, "cniVersion")
        supported = get_strings(answer, "supportedVersions")
    except JsonError as exc:
        raise BadResult(f"decoding version info: {exc}") from exc
    if not cni_version:
        raise BadResult("decoding version info: missing field cniVersion")
    if not supported and cni_version == "0.2.0":  # whose text had not named the field yet
        supported = (_IMPLIED, cni_version)
    if not supported:
        raise BadResult("decoding version info: missing field supportedVersions")
    return VersionInfo(cni_version=cni_version, supported=supported)
