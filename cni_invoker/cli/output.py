# SPDX-License-Identifier: Apache-2.0
"""Output of the tool: documents on standard output, messages for people on standard error."""

import logging
from collections.abc import Iterable

import click

from cni_invoker.caching.cache import CachedAttachment
from cni_invoker.caching.record import find_list_of_add, find_result_of_add, is_cut_off
from cni_invoker.config.directory import ConfigurationIndex
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, render_json
from cni_invoker.errors import CniError, PluginFailed
from cni_invoker.protocol import ErrorCode
from cni_invoker.versions import SUPPORTED_VERSIONS


class Messages(logging.Handler):
    """Shows the standard error of plugins, as libcni does, and the package's own warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show a record."""
        if getattr(record, "event", "") == "plugin.stderr":
            click.echo(f"{record.__dict__['plugin']}: {record.__dict__['line']}", err=True)
        elif record.levelno >= logging.WARNING:
            click.echo(record.getMessage(), err=True)


def print_json(value: JsonValue) -> None:
    """Print a document in the same format as cnitool and plugins written in Go."""
    click.echo(render_json(value, indent=4))


def print_error(exc: CniError) -> None:
    """Print an error as a plugin would (CNI SPEC "Error"), and as text for people.

    `msg` is the plugin's own message, if the error is a plugin's; `details` names the plugin and has all other facts.
    """
    text = "; ".join((str(exc), *getattr(exc, "__notes__", ())))
    error: dict[str, JsonValue] = {"cniVersion": SUPPORTED_VERSIONS[-1], "code": exc.code, "msg": text}
    if isinstance(exc, PluginFailed):
        error |= {"msg": exc.msg, "details": text}
    print_json(error)
    click.echo(text, err=True)


def print_usage_error(exc: click.UsageError) -> None:
    """Print an error in the command line as a CNI error, and as text for people."""
    print_json(
        {"cniVersion": SUPPORTED_VERSIONS[-1], "code": ErrorCode.INVALID_ENVIRONMENT, "msg": exc.format_message()}
    )
    exc.show()


def render_index(index: ConfigurationIndex) -> JsonObject:
    """Return the networks with their files, and the unusable files, as JSON."""
    networks = tuple(map(index.find, index.names))
    return {
        "networks": [
            {
                "name": network.name,
                "source": str(network.source),
                "cniVersion": network.cni_version,
                "plugins": [plugin.type for plugin in network.plugins],
            }
            for network in networks
        ],
        "shadowed": [
            {"name": shadowed.name, "source": str(shadowed.file), "by": str(shadowed.by)} for shadowed in index.shadowed
        ],
        "problems": [str(problem) for problem in index.problems],
    }


def render_index_text(index: ConfigurationIndex) -> str:
    """Return the same for a reader.

    ```
    blue             /etc/cni/net.d/10-blue.conflist  (CNI 1.0.0: bridge, firewall)
      shadowed       /etc/cni/net.d/20-blue.conf
    broken           error parsing configuration: /etc/cni/net.d/30-red.conf, line 3, column 9: Expecting ',' delimiter
    ```
    """
    lines = []
    for network in map(index.find, index.names):
        plugins = ", ".join(plugin.type for plugin in network.plugins)
        lines.append(f"{network.name:<16} {network.source}  (CNI {network.cni_version}: {plugins})")
        lines.extend(f"{'  shadowed':<16} {other.file}" for other in index.shadowed if other.name == network.name)
    lines.extend(f"{'broken':<16} {problem}" for problem in index.problems)
    return "\n".join(lines) or f"no net configurations found in {', '.join(map(str, index.directories))}"


def render_attachments(attachments: Iterable[CachedAttachment]) -> JsonObject:
    """Return the cached attachments as JSON."""
    return {
        "attachments": [
            {
                "network": cached.network,
                "containerID": cached.attachment.container_id,
                "ifname": cached.attachment.ifname,
                "netns": cached.attachment.netns,
                "addresses": list(_addresses(cached)),
                "state": _state(cached),
            }
            for cached in attachments
        ]
    }


def render_attachments_text(attachments: Iterable[CachedAttachment]) -> str:
    """Return the same for a reader.

    ```
    blue             cnitool-1a2b3c/eth0  /run/netns/testing  10.1.2.3/24  added
    ```
    """
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
    used = find_list_of_add(cached, None)
    return "add not completed" if used is not None and is_cut_off(cached, used) else "added"
