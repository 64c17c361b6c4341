# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""Finds iptables rules whose comment contains a container ID, and empty chains of the same plugins.

Plugins create them for masquerading and port mappings. A plugin that is killed between two commands leaves an empty
chain. Rules as iptables-save prints them (plugins `pkg/utils`, FormatComment; `meta/portmap`):

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
from dataclasses import dataclass
from typing import Final

import structlog

from cnm_bridge.driver.recovery.artifacts.artifact import PluginArtifact
from cnm_bridge.driver.recovery.artifacts.hashed_names import is_chain_name

__all__ = ["EmptyChain", "SavedRules", "find_rules", "parse_rules", "read_rules"]

log = structlog.get_logger()

_COMMANDS: Final = ("iptables-save", "ip6tables-save")
_LIMIT_S: Final = 10.0
_KILL_LIMIT_S: Final = 1.0
_CHAIN: Final = re.compile(r":(?P<chain>\S+) ")
_APPENDED: Final = re.compile(r"-A (?P<chain>\S+) ")
_OWNED: Final = re.compile(r'^-A .*--comment ".*?name: \\"(?P<network>[^"\\]+)\\" id: \\"(?P<id>[^"\\]+)\\"')


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyChain:
    """A chain without rules that a plugin created for a container.

    Attributes:
        name: The chain's name.
        what: A description for the operator: the command that would create it.
    """

    name: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRules:
    """The rules and chains of plugins that iptables-save printed.

    Attributes:
        artifacts: The rules whose comment contains a container ID.
        empty_chains: The chains without rules.
    """

    artifacts: tuple[PluginArtifact, ...] = ()
    empty_chains: tuple[EmptyChain, ...] = ()


async def find_rules(commands: Sequence[str] = _COMMANDS, *, limit_s: float = _LIMIT_S) -> SavedRules:
    """Return the plugins' rules and empty chains in the tables `nat`. A table that cannot be read counts as empty.

    Args:
        commands: The commands that print the rules.
        limit_s: Time limit of each command, in seconds.
    """
    saved = [await read_rules(command, "-t", "nat", limit_s=limit_s) for command in commands]

    def parse() -> SavedRules:
        tables = [command.rpartition("/")[2].removesuffix("-save") for command in commands]
        parsed = [parse_rules(text, table) for table, text in zip(tables, saved, strict=True)]
        return SavedRules(
            artifacts=tuple(artifact for rules in parsed for artifact in rules.artifacts),
            empty_chains=tuple(chain for rules in parsed for chain in rules.empty_chains),
        )

    return await asyncio.to_thread(parse)


def parse_rules(text: str, command: str = "iptables") -> SavedRules:
    """Return the plugins' rules and empty chains in the output of iptables-save.

    Args:
        text: The output.
        command: The command for descriptions, `iptables` or `ip6tables`.
    """
    lines = text.splitlines()
    owned = ((line, _OWNED.match(line)) for line in lines)
    chains = [match["chain"] for line in lines if (match := _CHAIN.match(line))]
    filled = {match["chain"] for line in lines if (match := _APPENDED.match(line))}
    return SavedRules(
        artifacts=tuple(
            PluginArtifact(network=match["network"], container_id=match["id"], what=f"{command} -t nat {line}")
            for line, match in owned
            if match is not None
        ),
        empty_chains=tuple(
            EmptyChain(name=chain, what=f"{command} -t nat -N {chain}")
            for chain in chains
            if is_chain_name(chain) and chain not in filled
        ),
    )


async def read_rules(command: str, *arguments: str, limit_s: float = _LIMIT_S) -> str:
    """Return the output of iptables-save or ip6tables-save; empty if it fails."""
    try:
        process = await asyncio.create_subprocess_exec(command, *arguments, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    except OSError as exc:  # a host without iptables has no such rules
        log.debug("rules.unread", command=command, error=str(exc))
        return ""
    try:
        async with asyncio.timeout(limit_s):
            output, _ = await process.communicate()
    except TimeoutError:
        log.warning("rules.unread", command=command, error=f"no answer within {limit_s:g} s")
        return ""
    finally:
        await _kill(process)
    if process.returncode:
        log.debug("rules.unread", command=command, status=process.returncode)
        return ""
    return output.decode("utf-8", "replace")  # a comment can contain any bytes


async def _kill(process: Process) -> None:
    """Kill a process that is still running. If it hangs in the kernel, continue without waiting for its end."""
    if process.returncode is None:
        with suppress(ProcessLookupError, TimeoutError):
            process.kill()
            async with asyncio.timeout(_KILL_LIMIT_S):
                await process.wait()
