# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a lab has that it did not have before, except what CNI plugins and dockerd leave behind by design.

And, in the other direction, what it had and has lost.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from tests.lab.state import LabState

# Rules and chains as `LabState.rules` has them. Never among them: a container's own chain (`CNI-` and 24 hexadecimal
# digits, `CNI-DN-…`), a jump to one, a rule for one address (`-s 10.1.0.2/32`, `-d fd00::2/128`).
_PERMANENT_RULES: Final = (
    r"\w+ \w+ :(PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING)",  # a table comes with its own chains
    # portmap never removes its shared chains, the jumps to them, and its rules for marks and masquerading
    r"\w+ nat :CNI-HOSTPORT-(DNAT|MASQ|SETMARK)",
    r"\w+ nat -A (PREROUTING|OUTPUT|POSTROUTING) .*-j CNI-HOSTPORT-(DNAT|MASQ)",
    r"\w+ nat -A CNI-HOSTPORT-(MASQ|SETMARK) .*",
    # firewall never removes its shared chains, the jumps to them, and its rules that isolate bridges
    r"\w+ filter :CNI-(ADMIN|FORWARD|ISOLATION-STAGE-[12])",
    r"\w+ filter -A (FORWARD|CNI-FORWARD) .*-j CNI-(ADMIN|FORWARD|ISOLATION-STAGE-1)",
    r"\w+ filter -A CNI-ISOLATION-STAGE-[12] .*",
)
_DOCKERS_RULES: Final = (
    r"\w+ \w+ (:DOCKER\S*|-A DOCKER.*|-A .*-j DOCKER\S*)",  # dockerd's chains and the jumps to them
    r"\w+ \w+ -A .*-[io] (docker0|docker_gwbridge|br-[0-9a-f]{12})\b.*",  # the rules of its bridges
)
_PERMANENT_RULE: Final = re.compile("|".join(_PERMANENT_RULES))
_DOCKERS_RULE: Final = re.compile("|".join(_DOCKERS_RULES))

# The bridge plugin never removes its bridge; dockerd removes its bridges with their networks, which are in the state.
_PERMANENT_LINK: Final = re.compile(r"\S+ \(bridge\)")


def leftovers(before: LabState, after: LabState) -> str:
    """Return what `after` has and `before` does not, as text with a line for each item; "" if nothing is left."""
    parts = {
        "containers": _more(before.containers, after.containers),
        "Docker networks": _more(before.networks, after.networks),
        "network namespaces": _more(before.namespaces, after.namespaces),
        "links": (line for line in _more(before.links, after.links) if not _PERMANENT_LINK.fullmatch(line)),
        "iptables": temporary_rules(before, after),
        "address reservations": _more(before.reservations, after.reservations),
        "run-time files": _more(before.files, after.files),
        "running CNI plugins": _more(before.plugins, after.plugins),
    }
    return "\n".join(f"{what}: {line}" for what, lines in parts.items() for line in lines)


def losses(before: LabState, after: LabState) -> str:
    """Return what `before` has and `after` does not, as text with a line for each item; "" if nothing was removed."""
    names = (field.name for field in fields(LabState))
    return "\n".join(f"{name}: {line}" for name in names for line in _more(getattr(after, name), getattr(before, name)))


def temporary_rules(before: LabState, after: LabState) -> Iterator[str]:
    """Yield the rules that `after` has and `before` does not, without those that stay by design."""
    # A shared rule may exist once; a second one was made by two plugins at the same time.
    allowed = Counter(before.rules) | Counter({rule: 1 for rule in after.rules if _PERMANENT_RULE.fullmatch(rule)})
    more = sorted((Counter(after.rules) - allowed).elements())
    return (rule for rule in more if not _DOCKERS_RULE.fullmatch(rule))


def _more(before: tuple[str, ...], after: tuple[str, ...]) -> Iterator[str]:
    return iter(sorted((Counter(after) - Counter(before)).elements()))
