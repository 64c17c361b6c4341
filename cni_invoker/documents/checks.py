# SPDX-License-Identifier: Apache-2.0
"""Checks what a caller gives, before anything runs.

The rules are those of the specification's "CNI operations" and libcni's `pkg/utils`.
Names are checked for every verb: each becomes part of a path, an environment variable or a plugin's rule.
"""

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from cni_invoker.errors import ErrorCode, InvalidParameter

if TYPE_CHECKING:  # plugins, which start anew for each call, do not load it
    from pathlib import Path

StrPath = str | os.PathLike[str]

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*")
_NAME_RULE: Final = "it must begin with a letter or digit, followed by letters, digits, '_', '.' or '-'"

# A text with a NUL or a lone surrogate cannot be passed to a process.
_UNENCODABLE: Final = "\0\ud800-\udfff"
_IFNAME: Final = re.compile(rf"[^/:\s{_UNENCODABLE}]+")
_IFNAME_BYTES: Final = 15  # IFNAMSIZ - 1
_FILE_NAME: Final = re.compile(rf"[^/{_UNENCODABLE}]+")
_ARGUMENT: Final = re.compile(rf"[^;={_UNENCODABLE}]*")
_ARGUMENT_VALUE: Final = re.compile(rf"[^;{_UNENCODABLE}]*")
_ARGUMENTS_BYTES: Final = 32 * 4096 - len("CNI_ARGS=") - 1  # execve(2): a variable has 32 pages, with its final NUL
_PATH: Final = re.compile(rf"[^{_UNENCODABLE}]*")
_DOTS: Final = frozenset({".", ".."})


def as_paths(values: StrPath | Iterable[StrPath]) -> "tuple[Path, ...]":
    """Return paths; a single one need not be in a list."""
    from pathlib import Path  # noqa: PLC0415  # see above

    return (Path(values),) if isinstance(values, str | os.PathLike) else tuple(map(Path, values))


def check_container_id(container_id: str) -> None:
    """Raise `InvalidParameter` (code 3 if it is empty, else 4) if this is not a container ID."""
    if not container_id:
        raise InvalidParameter("container ID", container_id, "it is empty", code=ErrorCode.UNKNOWN_CONTAINER)
    if _NAME.fullmatch(container_id) is None:
        raise InvalidParameter("container ID", container_id, _NAME_RULE)


def check_network_name(name: str) -> None:
    """Raise `InvalidParameter` (code 7) if this is not a network name."""
    if _NAME.fullmatch(name) is None:
        raise InvalidParameter("network name", name, _NAME_RULE, code=ErrorCode.INVALID_CONFIGURATION)


def check_ifname(ifname: str) -> None:
    """Raise `InvalidParameter` (code 4) if the kernel would refuse this as the name of a link."""
    if _IFNAME.fullmatch(ifname) is None or ifname in _DOTS or len(ifname.encode()) > _IFNAME_BYTES:
        rule = f"it must have 1 to {_IFNAME_BYTES} bytes, no '/', ':' or white space, and not be '.' or '..'"
        raise InvalidParameter("interface name", ifname, rule)


def check_plugin_type(plugin_type: str) -> None:
    """Raise `InvalidParameter` (code 7) if this cannot be the name of a plugin's file."""
    if _FILE_NAME.fullmatch(plugin_type) is None or plugin_type in _DOTS:
        rule = "it must be the name of a file" if plugin_type else "no plugin name provided"
        raise InvalidParameter("plugin type", plugin_type, rule, code=ErrorCode.INVALID_CONFIGURATION)


def check_netns(netns: str, *, is_needed: bool = False) -> None:
    """Raise `InvalidParameter` (code 4) if this cannot be an absolute path; only DEL does not need one."""
    if is_needed and not netns.startswith("/"):  # DEL may run in another directory, and would delete from nothing
        rule = "it is a relative path; give an absolute one" if netns else "it is empty"
        raise InvalidParameter("network namespace", netns, rule)
    if _PATH.fullmatch(netns) is None:
        raise InvalidParameter("network namespace", netns, "it is not a path")


def check_plugin_dir(directory: "Path") -> None:
    """Raise `InvalidParameter` (code 4) if this cannot be part of CNI_PATH."""
    try:
        is_path = b"\0" not in os.fsencode(directory)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise InvalidParameter("plugin directory", str(directory), "it is not a path")
    if os.pathsep in str(directory):
        reason = f"it has a {os.pathsep!r}, which is what separates directories in CNI_PATH; give it another name"
        raise InvalidParameter("plugin directory", str(directory), reason)


def check_argument(key: str, value: str, *, of_others: bool = False) -> None:
    """Raise `InvalidParameter` (code 4) if this cannot be in CNI_ARGS, `K=V;K2=V2`, which has no quoting.

    Other runtimes accept a value with '='; the DEL of what they added needs the same value. The error has only the key,
    because the value may be a credential.
    """
    values, signs = (_ARGUMENT_VALUE, "';'") if of_others else (_ARGUMENT, "';' or '='")
    if not key or _ARGUMENT.fullmatch(key) is None or values.fullmatch(value) is None:
        rule = f"the key must not be empty, nor have ';' or '=', and the value must not have {signs}"
        raise InvalidParameter("CNI argument", key, rule)


def check_arguments(args: Iterable[tuple[str, str]]) -> None:
    """Raise `InvalidParameter` (code 4) if these cannot be CNI_ARGS: one is invalid, or they are too long together."""
    texts = []
    for key, value in args:
        check_argument(key, value)
        texts.append(f"{key}={value}")
    size = len(";".join(texts).encode())
    if size > _ARGUMENTS_BYTES:
        keys = ", ".join(text.partition("=")[0] for text in texts)
        rule = f"together they have {size} bytes, and a process can receive {_ARGUMENTS_BYTES}; shorten a value"
        raise InvalidParameter("CNI arguments", keys, rule)
