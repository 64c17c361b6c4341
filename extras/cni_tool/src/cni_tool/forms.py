# SPDX-License-Identifier: Apache-2.0
"""What the tool reads, with cnitool's names, and what it writes: documents on standard output, messages for people."""

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import click

from cni_invoker.config_directories import ConfigurationIndex
from cni_invoker.documents.attachment import Attachment, AttachmentKey
from cni_invoker.documents.jsontypes import JsonError, JsonObject, JsonValue, as_object, parse_json, render_json
from cni_invoker.documents.printable import printable
from cni_invoker.documents.versions import SUPPORTED_VERSIONS
from cni_invoker.errors import CniError, ErrorCode, InvalidParameter, PluginFailed
from cni_tool.record import CachedAttachment, find_result_of_add

_CONFIGURATION_DIR: Final = Path("/etc/cni/net.d")
_PLUGIN_DIRS: Final = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
"""The conventional plugin directory and Debian's; cnitool has no default and needs `CNI_PATH`."""

_IFNAME: Final = "eth0"
_DIGEST_BYTES: Final = 10


def echo(text: object, *, err: bool = False) -> None:
    """Print a text and a line break, on standard error with `err`. Other control characters are escaped."""
    click.echo(printable(str(text), keep="\n\t"), err=err)


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


class Messages(logging.Handler):
    """Shows the standard error of plugins, as libcni does, and the package's own warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        if getattr(record, "event", "") == "plugin.stderr":
            echo(f"{record.__dict__['plugin']}: {record.__dict__['line']}", err=True)
        elif record.levelno >= logging.WARNING:
            echo(record.getMessage(), err=True)


def print_json(value: JsonValue) -> None:
    """Print a document in the same format as cnitool and plugins written in Go."""
    echo(render_json(value, indent=4).decode())


def print_error(exc: CniError) -> None:
    """Print an error as a plugin would (CNI SPEC "Error"), and as text for people.

    `msg` is the plugin's own message, if the error is a plugin's; `details` names the plugin and has all other facts.
    """
    text = "; ".join((str(exc), *getattr(exc, "__notes__", ())))
    error: dict[str, JsonValue] = {"cniVersion": SUPPORTED_VERSIONS[-1], "code": exc.code, "msg": text}
    if isinstance(exc, PluginFailed):
        error |= {"msg": exc.msg, "details": text}
    print_json(error)
    echo(text, err=True)


def print_usage_error(exc: click.UsageError) -> None:
    """Print an error in the command line as a CNI error, and as text for people."""
    print_json(
        {"cniVersion": SUPPORTED_VERSIONS[-1], "code": ErrorCode.INVALID_ENVIRONMENT, "msg": exc.format_message()}
    )
    exc.show()


def render_index(index: ConfigurationIndex) -> str:
    """Return the networks by name, each with its shadowed files, and then the broken files."""
    lines = []
    for network in map(index.find, index.names):
        plugins = ", ".join(plugin.type for plugin in network.plugins)
        lines.append(f"{network.name:<16} {network.source}  (CNI {network.cni_version}: {plugins})")
        lines.extend(f"{'  shadowed':<16} {other.file}" for other in index.shadowed if other.name == network.name)
    lines.extend(f"{'broken':<16} {problem}" for problem in index.problems)
    return "\n".join(lines) or f"no net configurations found in {', '.join(map(str, index.directories))}"


def render_attachments(attachments: Iterable[CachedAttachment]) -> str:
    """Return a line for each attachment."""
    lines = []
    for cached in attachments:
        attachment = cached.attachment
        addresses = ", ".join(_addresses(cached)) or "no address"
        name = f"{attachment.container_id}/{attachment.ifname}"
        lines.append(
            f"{cached.network:<16} {name}  {attachment.netns or 'no namespace'}  {addresses}  {_state(cached)}"
        )
    return "\n".join(lines) or "no attachment"


def _addresses(cached: CachedAttachment) -> tuple[str, ...]:
    result = find_result_of_add(cached)
    return () if result is None else tuple(str(ip.address) for ip in result.ips)


def _state(cached: CachedAttachment) -> str:
    """Return the state of an attachment."""
    if cached.deleted is not None:
        return "del not completed"
    return "add not completed" if cached.is_cut_off else "added"
