# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Rules of nftables that tell in a comment whose they are: `ipMasqBackend` of bridge and ptp, `backend` of portmap.

As nft prints them (plugins 1.9.1 `pkg/ip/ipmasq_nftables`, `meta/portmap/portmap_nftables`, measured):

```
table inet cni_plugins_masquerade { # handle 2
    chain masq_checks { # handle 1
        ip saddr 10.77.0.2 … masquerade comment "a442…-dc3b…, net: lan, if: eth0, id: 77ad…" # handle 6
table ip cni_hostport { # handle 3
    chain hostports { # handle 1
        tcp dport 8080 dnat to 10.77.0.2:80 comment "77ad…" # handle 11
```
"""

import re
from collections.abc import Iterator
from typing import Final

from cnm_bridge.traces.output import LIMIT_S, read_output
from cnm_bridge.traces.trace import ANY_NETWORK, Trace

__all__ = ["find_nft_rules", "parse_nft_rules"]

_TABLES: Final = ("inet cni_plugins_masquerade", "ip cni_hostport", "ip6 cni_hostport")
_CHAIN: Final = re.compile(r"\s*chain (?P<chain>\S+) \{")
_RULE: Final = re.compile(r'\s.* comment "(?P<comment>[^"]+)" # handle (?P<handle>\d+)$')
_MASQUERADE: Final = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}, net: (?P<network>.+), if: .+, id: (?P<id>.+)")
_CUT: Final = 127
"""From this length on the end of a comment is missing (NFTNL_UDATA_COMMENT_MAXLEN is 128 with its last zero)."""


async def find_nft_rules(command: str = "nft", *, limit_s: float = LIMIT_S) -> tuple[Trace, ...]:
    """Return the rules that tell a container ID; none where there are no such tables.

    Args:
        command: What prints them.
        limit_s: How long it may take for each table, in seconds.
    """
    printed = [
        (table, await read_output(command, "-a", "list", "table", *table.split(), limit_s=limit_s)) for table in _TABLES
    ]
    return tuple(trace for table, text in printed for trace in parse_nft_rules(text, table))


def parse_nft_rules(text: str, table: str) -> Iterator[Trace]:
    """Yield the rules of a table that tell a container ID; `portmap` does not tell the network.

    Args:
        text: What `nft -a list table` printed.
        table: Family and name of it.
    """
    chain = ""
    for line in text.splitlines():
        if opening := _CHAIN.match(line):
            chain = opening["chain"]
        rule = _RULE.match(line)
        if rule is None or len(rule["comment"].encode()) >= _CUT:
            continue
        masquerade = _MASQUERADE.fullmatch(rule["comment"])
        if masquerade is None and not table.endswith("cni_hostport"):
            continue
        yield Trace(
            network=masquerade["network"] if masquerade else ANY_NETWORK,
            container_id=masquerade["id"] if masquerade else rule["comment"],
            what=f"nft rule {table} {chain} handle {rule['handle']}",
        )
