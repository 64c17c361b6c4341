# SPDX-License-Identifier: Apache-2.0
"""Versions of the CNI specification: parsing, ordering, their operations, and what a plugin reports as supported."""

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

from cni_invoker.documents.jsontypes import JsonError, as_object, find_str, get_strings, parse_json
from cni_invoker.errors import BadResult, ErrorCode, InvalidParameter, VersionUnsupported

SUPPORTED_VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")

_IMPLIED: Final = "0.1.0"
"""The version of a document without one: the first specification had no field for it."""

_VERSION: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")


class Verb(StrEnum):
    """The operation that a plugin is to perform: the value of `CNI_COMMAND`."""

    ADD = "ADD"
    DEL = "DEL"
    CHECK = "CHECK"
    GC = "GC"
    STATUS = "STATUS"
    VERSION = "VERSION"

    @property
    def since(self) -> str:
        """The first version of the specification that has it, e.g. `1.1.0`."""
        return _LATER.get(self, "0.1.0")


VALID_ATTACHMENTS: Final = ("cni.dev/valid-attachments", "cni.dev/attachments")
"""The key of GC in the text of 1.1.0, and the earlier spelling of libcni and plugins."""

_LATER: Final = {Verb.VERSION: "0.2.0", Verb.CHECK: "0.4.0", Verb.GC: "1.1.0", Verb.STATUS: "1.1.0"}
"""The verbs that the first specification did not have."""


@lru_cache(maxsize=64)
def parse_version(version: str) -> tuple[int, int, int]:
    """Return a version (`1.0.0`, `1.0` or `1`) as numbers that can be compared; an empty one is 0.1.0.

    Raises:
        InvalidParameter: It is not a version.
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
    """Raise `VersionUnsupported` if this runtime does not support `version`."""
    if version not in SUPPORTED_VERSIONS:
        raise _unsupported(version)


def _unsupported(version: str) -> VersionUnsupported:
    return VersionUnsupported(f"unsupported CNI version {version}; supported are {', '.join(SUPPORTED_VERSIONS)}")


def offered_versions(cni_version: str, cni_versions: Sequence[str] | None) -> tuple[str, ...]:
    """Return the versions that a network configuration list offers, newest first.

    With `cniVersions`, these are the versions of both keys that are not newer than what this runtime supports. Without
    it, it is `cniVersion`, even if it is unknown (CNI SPEC §1 "Version considerations").

    Raises:
        InvalidParameter: A version is malformed.
        VersionUnsupported: Every version in `cniVersions` is newer than what this runtime supports.
    """
    offered = [version for version in dict.fromkeys((*(cni_versions or ()), cni_version)) if version]
    numbers = {version: parse_version(version) for version in offered}
    if cni_versions is None or not offered:
        return (cni_version or _IMPLIED,)
    newest = parse_version(SUPPORTED_VERSIONS[-1])
    usable = [version for version in offered if numbers[version] <= newest]
    if not usable:
        raise _unsupported(", ".join(offered))
    return tuple(sorted(usable, key=parse_version, reverse=True))


class VersionInfo(NamedTuple):
    """A plugin's answer to VERSION: the answer's own version, and those that the plugin supports, in its order."""

    cni_version: str
    supported: tuple[str, ...]


ONLY_THE_FIRST: Final = VersionInfo(cni_version=_IMPLIED, supported=(_IMPLIED,))
"""What a plugin without VERSION supports: the verb was added in 0.2.0."""


def parse_version_info(stdout: bytes) -> VersionInfo:
    """Parse a plugin's answer to VERSION (CNI SPEC §5 "VERSION Success"), or raise `BadResult`."""
    try:
        answer = as_object(parse_json(stdout), "it")
        cni_version = find_str(answer, "cniVersion")
        supported = get_strings(answer, "supportedVersions")
    except JsonError as exc:
        raise BadResult(f"decoding version info: {exc}") from exc
    if not cni_version:
        raise BadResult("decoding version info: missing field cniVersion")
    if not supported and cni_version == "0.2.0":  # the specification of 0.2.0 did not name the field
        supported = (_IMPLIED, cni_version)
    if not supported:
        raise BadResult("decoding version info: missing field supportedVersions")
    return VersionInfo(cni_version=cni_version, supported=supported)
