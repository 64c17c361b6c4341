# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""iptables rules that tell in a comment whose they are: those of masquerading and of port mappings.

As iptables-save prints them (plugins `pkg/utils`, FormatComment; `meta/portmap`):

```
-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"lan\" id: \"77ad…\"" -j CNI-0a1b…
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"lan\" id: \"77ad…\"" -m multiport … -j CNI-DN-2c3d…
```
"""

import asyncio
import re
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog

from cnm_bridge.traces.trace import Trace

__all__ = ["find_rules", "parse_rules"]

log = structlog.get_logger()

_COMMANDS: Final = ("iptables-save", "ip6tables-save")
_LIMIT_S: Final = 10.0
_KILL_LIMIT_S: Final = 1.0
_OWNED: Final = re.compile(r'^-A .*--comment ".*?name: \\"(?P<network>[^"\\]+)\\" id: \\"(?P<id>[^"\\]+)\\"')


async def find_rules(commands: Sequence[str] = _COMMANDS, *, limit_s: float = _LIMIT_S) -> tuple[Trace, ...]:
    """Return the rules that tell a container ID; none where the tables cannot be read.

    Args:
        commands: What prints the rules.
        limit_s: How long each may take, in seconds.
    """
    saved = [await _save(command, limit_s) for command in commands]

    def parse() -> tuple[Trace, ...]:
        tables = [command.rpartition("/")[2].removesuffix("-save") for command in commands]
        return tuple(rule for table, text in zip(tables, saved, strict=True) for rule in parse_rules(text, table))

    return await asyncio.to_thread(parse)


def parse_rules(text: str, command: str = "iptables") -> tuple[Trace, ...]:
    """Return the rules that tell a container ID in what iptables-save printed.

    Args:
        text: It.
        command: What would make the rules, `iptables` or `ip6tables`.
    """
    found = ((line, _OWNED.match(line)) for line in text.splitlines())
    return tuple(
        Trace(network=match["network"], container_id=match["id"], what=f"{command} -t nat {line}")
        for line, match in found
        if match is not None
    )


async def _save(command: str, limit_s: float) -> str:
    try:
        process = await asyncio.create_subprocess_exec(command, "-t", "nat", stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except OSError as exc:  # a host without iptables has no rules of it
        log.debug("rules.unread", command=command, error=str(exc))
        return ""
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await process.communicate()
    except TimeoutError:
        log.warning("rules.unread", command=command, error=f"no answer within {limit_s:g} s")
        return ""
    finally:
        await _end(process)
    if process.returncode:
        log.debug("rules.unread", command=command, status=process.returncode)
        return ""
    return output.decode("utf-8", "replace")  # a comment may be of any bytes


async def _end(process: Process) -> None:
    """End a process that has not ended; one that the kernel does not let go is not waited for."""
    if process.returncode is None:
        with suppress(ProcessLookupError, TimeoutError):
            process.kill()
            async with asyncio.timeout(_KILL_LIMIT_S):
                await process.wait()
