# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What iptables does with a forwarded packet of a network, by the output of `iptables-save`. Pure.

Only what is certain counts: a rule decides if it matches all packets of the network. A rule with a condition that is
not understood (a protocol, a state, a link towards the outside) is ignored.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final

from cnm_bridge.core.saved_rules import parse_saved_rules

_FORWARD: Final = "FORWARD"
_OF_FIREWALL: Final = "CNI-FORWARD"
"""The chain of the plugin `firewall`."""
_OF_USER: Final = "DOCKER-USER"
_ACCEPT: Final = "ACCEPT"
_DROPS: Final = frozenset({"DROP", "REJECT"})
_DEPTH: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """What is known of a packet; None and `` stand for any.

    Attributes:
        enters: The link through which it comes, `` for any veth; None if that is not known.
        leaves: The link through which it leaves, likewise.
    """

    source: IPv4Network | IPv6Network | None = None
    destination: IPv4Network | IPv6Network | None = None
    enters: str | None = None
    leaves: str | None = None


class FilterTable:
    """The table `filter`.

    Args:
        lines: The output of `iptables-save -t filter`.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        saved = parse_saved_rules(lines)
        self._policies = saved.policies
        self._rules: dict[str, list[str]] = {}
        for rule in saved.rules:
            self._rules.setdefault(rule.chain, []).append(rule.text)

    @property
    def chains(self) -> frozenset[str]:
        """The names of its chains."""
        return frozenset(self._policies)

    @property
    def forward_policy(self) -> str:
        """The policy of the chain FORWARD; ACCEPT if the table was never used."""
        return self._policies.get(_FORWARD, _ACCEPT)

    @property
    def user_chain(self) -> str:
        """The chain for an operator's rules: DOCKER-USER if FORWARD leads there; with nftables Docker has none."""
        return _OF_USER if self._leads_to(_OF_USER) else _FORWARD

    def _leads_to(self, chain: str) -> bool:
        """Return whether FORWARD leads to a chain."""
        return any(_parse(line)[1] == chain for line in self._rules.get(_FORWARD, ()))

    def find_drop(self, packet: Packet, *, has_firewall: bool = False) -> str:
        """Return what is certain to drop the first packet of a connection, "" if nothing is.

        E.g. `the policy DROP of chain FORWARD`. With `has_firewall` the plugin `firewall` accepts the packet, because
        it comes from a container: the plugin puts the jump to its chain first in FORWARD, with its first ADD.
        """
        if has_firewall and not self._leads_to(_OF_FIREWALL):
            return ""
        found = self._walk(_FORWARD, packet, has_firewall=has_firewall, depth=0)
        if found is not None:
            return found
        policy = self.forward_policy
        return "" if policy == _ACCEPT else f"the policy {policy} of chain {_FORWARD}"

    def _walk(self, chain: str, packet: Packet, *, has_firewall: bool, depth: int) -> str | None:
        """Return as `find_drop`; None if no rule of the chain decides."""
        if chain == _OF_FIREWALL and has_firewall:
            return ""
        for line in self._rules.get(chain, ()) if depth < _DEPTH else ():
            conditions, target = _parse(line)
            if not _matches(conditions, packet):
                continue
            if target == "RETURN":
                return None
            if target == _ACCEPT or target in _DROPS:
                return "" if target == _ACCEPT else f"the rule `{line}`"
            if target in self._policies:
                found = self._walk(target, packet, has_firewall=has_firewall, depth=depth + 1)
                if found is not None:
                    return found
        return None


def _parse(line: str) -> tuple[Mapping[str, str], str]:
    """Return the conditions of a rule by option, `!` before those that are negated, and its target."""
    conditions: dict[str, str] = {}
    target = ""
    for option, value in _options(shlex.split(line)[2:]):
        if option in {"-j", "--jump", "-g", "--goto"}:
            target = value
            break  # what follows are options of the target
        conditions[option] = value
    return conditions, target


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    negated, option, values = "", "", list[str]()
    for word in words:
        if word == "!" or word.startswith("-"):
            if option:
                yield option, " ".join(values)
                option, values = "", []
            if word == "!":
                negated = "!"
            else:
                option, negated = negated + word, ""
        else:
            values.append(word)
    if option:
        yield option, " ".join(values)


def _matches(conditions: Mapping[str, str], packet: Packet) -> bool:
    links = {"-i": packet.enters, "-o": packet.leaves}
    for option, value in conditions.items():
        link = links.get(option.removeprefix("!"))
        match option, value:
            case ("-m", "comment") | ("--comment", _):
                continue
            case (("-i" | "-o"), name) if link is not None and _is_link(link, name):
                continue
            case (("!-i" | "!-o"), name) if link and not _is_link(link, name):
                continue
            case "-s", source if _includes(source, packet.source):
                continue
            case "-d", destination if _includes(destination, packet.destination):
                continue
            case _:
                return False
    return True


def _is_link(link: str, pattern: str) -> bool:
    if not link:  # any veth
        return pattern in {"veth+", "+"}
    return link.startswith(pattern[:-1]) if pattern.endswith("+") else link == pattern


def _includes(network_text: str, subnet: IPv4Network | IPv6Network | None) -> bool:
    """Return whether a network, which may be malformed or a single address, includes all of a subnet."""
    try:
        network = ip_network(network_text, strict=False)
    except ValueError:
        return False
    if isinstance(network, IPv4Network):
        return isinstance(subnet, IPv4Network) and subnet.subnet_of(network)
    return isinstance(subnet, IPv6Network) and subnet.subnet_of(network)
