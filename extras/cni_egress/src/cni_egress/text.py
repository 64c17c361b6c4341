# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the commands print for people; pure."""

import textwrap
from collections.abc import Sequence
from typing import Final

from cni_egress.inspection import Answer
from cni_invoker.documents.jsontypes import (
    JsonObject,
    JsonValue,
    as_object,
    get_list,
    get_objects,
    get_str,
    get_strings,
)

__all__ = ["show_answer", "show_line", "show_networks", "show_state"]

_WIDTH: Final = 80
_ID: Final = 12
"""How many characters of a container ID are shown."""


def show_networks(networks: Sequence[JsonValue]) -> str:
    """Return the text of `describe_networks`."""
    return "\n\n".join(_show_network(as_object(one, "a network")) for one in networks)


def _show_network(network: JsonObject) -> str:
    audit = "  (audit: everything passes, and is logged)" if network.get("audit") is True else ""
    lines = [f"{get_str(network, 'network')}  {', '.join(get_strings(network, 'subnets'))}{audit}"]
    lines += _wrapped("  allow: ", get_strings(network, "allow"))
    for one in get_objects(network, "attachments"):
        identity = f"{get_str(one, 'containerId')[:_ID]} {get_str(one, 'ifName')}"
        lines.append(f"  {identity}  {', '.join(get_strings(one, 'addresses'))}  refused: {one['refused']}")
        lines += _wrapped("    allow: ", get_strings(one, "allow")) if get_list(one, "allow") else []
        lines += [
            f"    open: {use.get('name') or '-'} {get_str(use, 'address')} {', '.join(get_strings(use, 'ports'))}"
            f" for {use['seconds']} s"
            for use in get_objects(one, "open")
        ]
        lines += [
            f"    reached: {to.get('name') or '-'} {get_str(to, 'address')} {get_str(to, 'port')} ({to['connections']})"
            for to in get_objects(one, "reached")
        ]
    return "\n".join(lines)


def _wrapped(head: str, words: Sequence[str]) -> list[str]:
    text = ", ".join(words) or "nothing"
    return textwrap.wrap(
        head + text, _WIDTH, subsequent_indent=" " * len(head), break_long_words=False, break_on_hyphens=False
    )


def show_line(line: JsonObject) -> str:
    """Return the text of a line of the log."""
    port = f":{line['port']}" if "port" in line else ""
    address = str(line.get("address", ""))
    where = f"[{address}]{port}" if port and ":" in address else f"{address}{port}"
    words = [str(line.get("name", "")), where, str(line.get("protocol", ""))]
    audit = " (passed: audit)" if line.get("audit") else ""
    who = str(line.get("container", ""))[:_ID] or str(line.get("source", ""))
    return f"{line.get('time', '')} {who} {' '.join(filter(None, words))}: {line.get('why', '')}{audit}"


def show_state(status: JsonObject) -> str:
    """Return the text of `describe_status`."""
    runs = "runs" if status["isRunning"] is True else "does not run"
    lines = [f"cni-egress {runs}; guarded attachments: {status['attachments']}"]
    lines += [
        f"missing: {get_str(one, 'what')} of {get_str(one, 'containerId')[:_ID]} on {get_str(one, 'network')}"
        for one in get_objects(status, "missing")
    ]
    lines += [f"conflict: {one}" for one in get_strings(status, "conflicts")]
    return "\n".join(lines)


def show_answer(answer: Answer, destination: str) -> str:
    """Return the text of an answer to `check`."""
    verdict = "allowed" if answer.allowed else "refused"
    lines = [f"{destination} is {verdict} to {answer.record}: {answer.why}"]
    opened = [as_object(one, "an address") for one in answer.opened]
    lines += [f"  open: {one['address']} for {one['seconds']} s" for one in opened]
    return "\n".join(lines)
