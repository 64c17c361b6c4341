# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""The output of iptables-save and ip6tables-save as records. Pure; everything that reads rules reads them here.

Rules of plugins for masquerading and port mappings have the container ID in a comment (plugins `pkg/utils`,
FormatComment; `meta/portmap`):

```
*nat
:CNI-0a1b… - [0:0]
-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"lan\" id: \"77ad…\"" -j CNI-0a1b…
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"lan\" id: \"77ad…\"" -m multiport … -j CNI-DN-2c3d…
```
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_OWNED: Final = re.compile(r'--comment ".*?name: \\"(?P<network>[^"\\]+)\\" id: \\"(?P<id>[^"\\]+)\\"')


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRule:
    """A rule.

    Attributes:
        table: Its table, e.g. `nat`; `?` if the output does not say.
        text: The rule as it is printed, `-A POSTROUTING …`.
    """

    table: str
    chain: str
    text: str

    @property
    def owner(self) -> tuple[str, str] | None:
        """The CNI network and the container ID in its comment, None if it has none."""
        match = _OWNED.search(self.text)
        return None if match is None else (match["network"], match["id"])


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRules:
    """All of the output, with the policy of each chain of all tables; it is `-` for one that is not built in."""

    rules: tuple[SavedRule, ...]
    policies: Mapping[str, str]


def parse_saved_rules(lines: Iterable[str]) -> SavedRules:
    """Return the rules and chains in the output."""
    table = "?"
    rules: list[SavedRule] = []
    policies: dict[str, str] = {}
    for line in lines:
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith(":"):
            chain, policy, *_ = line[1:].split()
            policies[chain] = policy
        elif line.startswith("-A "):
            rules.append(SavedRule(table=table, chain=line.split(maxsplit=2)[1], text=line))
    return SavedRules(rules=tuple(rules), policies=policies)
