# SPDX-License-Identifier: Apache-2.0
"""The tool's settings from its environment, with the same names as cnitool, and names from its arguments; pure."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cni_invoker.documents.jsontypes import JsonError, JsonObject, as_object, parse_json
from cni_invoker.errors import InvalidParameter
from cni_invoker.inputs.attachment import Attachment, AttachmentKey
from cni_invoker.protocol import ErrorCode

_CONFIGURATION_DIR: Final = Path("/etc/cni/net.d")
_PLUGIN_DIRS: Final = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
"""The conventional plugin directory and Debian's; cnitool has no default and needs `CNI_PATH`."""

_IFNAME: Final = "eth0"
_DIGEST_BYTES: Final = 10


def find_configuration_dir(environment: Mapping[str, str]) -> Path:
    """Return the directory of network configurations, from `NETCONFPATH`."""
    return Path(environment.get("NETCONFPATH") or _CONFIGURATION_DIR)


def find_plugin_dirs(environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the plugin directories, from `CNI_PATH`, which is separated by colons."""
    named = environment.get("CNI_PATH", "")
    return tuple(Path(directory) for directory in named.split(os.pathsep) if directory) or _PLUGIN_DIRS


def container_id(netns: str) -> str:
    """Return cnitool's container ID for a namespace, which it derives from the namespace's absolute path."""
    return f"cnitool-{hashlib.sha512(os.fsencode(netns)).digest()[:_DIGEST_BYTES].hex()}"


def parse_attachment(netns: str, environment: Mapping[str, str], *, ifname: str | None = None) -> Attachment:
    """Return the attachment that the arguments and the environment describe.

    Raises:
        InvalidParameter: A value is malformed.
    """
    # abspath keeps two leading slashes, as POSIX says; Go, whose result the ID is made from, does not.
    absolute = f"/{os.path.abspath(netns).lstrip('/')}"  # noqa: PTH100  # Path.resolve would follow links
    return Attachment(
        container_id=container_id(absolute),
        ifname=ifname or environment.get("CNI_IFNAME") or _IFNAME,
        netns=absolute,
        args=_arguments(environment.get("CNI_ARGS", "")),
        capability_args=_capability_args(environment.get("CAP_ARGS", "")),
    )


def parse_key(text: str) -> AttachmentKey:
    """Return the attachment that a text of the form ID/IFNAME names; raise `InvalidParameter` for others."""
    identifier, slash, ifname = text.partition("/")
    if not slash:
        raise InvalidParameter(
            "attachment", text, "it is not of the form ID/IFNAME", code=ErrorCode.INVALID_ENVIRONMENT
        )
    return AttachmentKey(container_id=identifier, ifname=ifname)


def _arguments(text: str) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in text.split(";") if text else ():
        match pair.split("="):
            case [key, value] if key and value:
                found.append((key, value))
            case _:
                raise InvalidParameter(
                    "CNI_ARGS", text, f"{pair!r} is not of the form K=V", code=ErrorCode.INVALID_ENVIRONMENT
                )
    return tuple(found)


def _capability_args(text: str) -> JsonObject:
    try:
        return as_object(parse_json(text.encode()), "the value") if text else {}
    except JsonError as exc:
        raise InvalidParameter("CAP_ARGS", text, str(exc), code=ErrorCode.INVALID_ENVIRONMENT) from exc
