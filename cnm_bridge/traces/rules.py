# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""iptables rules that tell in a comment whose they are, and chains of the same makers that have none.

They are those of masquerading and of port mappings. A chain is left empty by a plugin that died between two commands.

As iptables-save prints them (plugins `pkg/utils`, FormatComment; `meta/portmap`):

```
-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"lan\" id: \"77ad…\"" -j CNI-0a1b…
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"lan\" id: \"77ad…\"" -m multiport … -j CNI-DN-2c3d…
```
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cnm_bridge.traces.hashed_names import is_chain_name
from cnm_bridge.traces.output import LIMIT_S, read_output
from cnm_bridge.traces.trace import Trace

__all__ = ["EmptyChain", "SavedRules", "find_rules", "parse_rules"]

_COMMANDS: Final = ("iptables-save", "ip6tables-save")
_CHAIN: Final = re.compile(r":(?P<chain>\S+) ")
_APPENDED: Final = re.compile(r"-A (?P<chain>\S+) ")
_OWNED: Final = re.compile(r'^-A .*--comment ".*?name: \\"(?P<network>[^"\\]+)\\" id: \\"(?P<id>[^"\\]+)\\"')


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyChain:
    """A chain that was made for some container, without rules.

    Attributes:
        name: What it is called.
        what: How an operator finds it: the command that would make it.
    """

    name: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRules:
    """What iptables-save printed, as far as it is of plugins.

    Attributes:
        traces: The rules that tell a container ID.
        empty_chains: The chains without rules.
    """

    traces: tuple[Trace, ...] = ()
    empty_chains: tuple[EmptyChain, ...] = ()


async def find_rules(commands: Sequence[str] = _COMMANDS, *, limit_s: float = LIMIT_S) -> SavedRules:
    """Return the rules that tell a container ID, and empty chains; none where the tables cannot be read.

    Args:
        commands: What prints the rules.
        limit_s: How long each may take, in seconds.
    """
    saved = [await read_output(command, "-t", "nat", limit_s=limit_s) for command in commands]

    def parse() -> SavedRules:
        tables = [command.rpartition("/")[2].removesuffix("-save") for command in commands]
        parsed = [parse_rules(text, table) for table, text in zip(tables, saved, strict=True)]
        return SavedRules(
            traces=tuple(trace for rules in parsed for trace in rules.traces),
            empty_chains=tuple(chain for rules in parsed for chain in rules.empty_chains),
        )

    return await asyncio.to_thread(parse)


def parse_rules(text: str, command: str = "iptables") -> SavedRules:
    """Return the rules that tell a container ID, and empty chains, in what iptables-save printed.

    Args:
        text: It.
        command: What would make the rules, `iptables` or `ip6tables`.
    """
    lines = text.splitlines()
    owned = ((line, _OWNED.match(line)) for line in lines)
    chains = [match["chain"] for line in lines if (match := _CHAIN.match(line))]
    filled = {match["chain"] for line in lines if (match := _APPENDED.match(line))}
    return SavedRules(
        traces=tuple(
            Trace(network=match["network"], container_id=match["id"], what=f"{command} -t nat {line}")
            for line, match in owned
            if match is not None
        ),
        empty_chains=tuple(
            EmptyChain(name=chain, what=f"{command} -t nat -N {chain}")
            for chain in chains
            if is_chain_name(chain) and chain not in filled
        ),
    )
