# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The text of the tables, for `nft`; pure.

The table `inet cni-egress` judges each packet that arrives from a guarded link before it is routed: by the address of
its source it goes to the chain of a policy, which accepts and marks it, or refuses it. Accepted packets still pass the
rules of Docker, firewalld and the like. The table `bridge cni-egress` lets a port send only with its container's
addresses.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, collapse_addresses, ip_network
from typing import Final

from cni_egress.elements import set_of
from cni_egress.nftables import TABLE
from cni_egress.policy import IpNetwork, Policy, PortRange, Protocol

__all__ = [
    "CLOSING",
    "LOG_GROUP",
    "METADATA",
    "RESPONDER4",
    "RESPONDER6",
    "RESPONDER_LINK",
    "chain_of",
    "count_rules",
    "is_chain_of_policy",
    "is_of_policy",
    "is_special",
    "render_base",
    "render_policy",
    "version_of",
]

RESPONDER4: Final = "169.254.53.53"
RESPONDER6: Final = "fd53:5353::53"
RESPONDER_LINK: Final = "cni-dns"
"""The host's end of the link to the responder's namespace."""

LOG_GROUP: Final = 5353
"""The group of NFLOG. The prefixes are `refused`, `audit`, `unknown` (source) and `spoofed`."""

CLOSING: Final = "closing"
"""The chain of containers whose policy is being narrowed; a process that finds a container there completes that."""

_CHAIN: Final = "policy-"

METADATA: Final = tuple(
    map(ip_network, ("100.100.100.200", "169.254.0.0/16", "192.0.0.192", "fd00:ec2::/32", "fd20:ce::254", "fe80::/10"))
)
"""Addresses of metadata services of clouds, and all link-local ones: a larger network does not allow them."""

_DISCOVERY: Final = "nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit"
_MLD: Final = "mld-listener-report, mld2-listener-report"


def _log(name: str) -> str:
    """Return a chain that logs a packet, for each container and destination at most twice a minute."""
    rules = []
    for family, version in (("ip", 4), ("ip6", 6)):
        pair = f"{family} saddr . {family} daddr"
        limit = f'limit rate 2/minute burst 2 packets }} log group {LOG_GROUP} prefix "{name}"'
        service = f"meta l4proto {{ tcp, udp }} add @logged{version}"
        rules.append(f"{service} {{ {pair} . meta l4proto . th dport {limit}")
        rules.append(f"meta l4proto != {{ tcp, udp }} add @logged-other{version} {{ {pair} . meta l4proto {limit}")
    return "\n".join((f"  chain log-{name} {{", *(f"    {rule}" for rule in rules), "  }"))


def _inet(mark: int) -> str:
    sets = []
    for version in (4, 6):
        address = f"ipv{version}_addr"
        logged = "size 65536; flags dynamic, timeout; timeout 1m;"
        sets += [
            f"map sources{version} {{ type ifname . {address} : verdict; }}",
            f"set askers{version} {{ type ifname . {address}; }}",
            f"set names{version} {{ type {address} . {address} . inet_proto . inet_service; flags timeout; }}",
            f"set logged{version} {{ type {address} . {address} . inet_proto . inet_service; {logged} }}",
            f"set logged-other{version} {{ type {address} . {address} . inet_proto; {logged} }}",
        ]
    lines = "\n  ".join(sets)
    logs = "\n".join(map(_log, ("refused", "audit", "unknown")))
    return f"""
table inet {TABLE} {{
  set links {{ type ifname; }}
  set inside {{ typeof fib daddr oifname; }}
  {lines}
  counter refused {{ }}
{logs}
  chain pass {{
    meta mark set meta mark or {mark:#x} accept
  }}
  chain send-reject {{
    counter name refused
    meta l4proto tcp reject with tcp reset
    reject with icmpx admin-prohibited
  }}
  chain refuse {{
    fib daddr type != {{ unicast, local }} drop
    jump log-refused
    goto send-reject
  }}
  chain only-log {{
    jump log-audit
    goto pass
  }}
  chain {CLOSING} {{
    drop comment "until what its new policy does not allow is closed"
  }}
  chain known {{
    ct state established goto pass
    ct state related drop comment "its flow may be that of the host or of another container"
  }}
  chain judge {{
    icmpv6 type {{ {_DISCOVERY}, {_MLD} }} fib daddr type {{ local, multicast }} accept
    iifname . ip saddr vmap @sources4
    iifname . ip6 saddr vmap @sources6
    jump log-unknown
    drop comment "an answer to a false source would leave the host"
  }}
  chain guard {{
    type filter hook prerouting priority mangle; policy accept;
    iifname @links goto judge
  }}
  chain ask {{
    type nat hook prerouting priority dstnat - 5; policy accept;
    iifname . ip saddr @askers4 meta l4proto {{ tcp, udp }} th dport 53 dnat ip to {RESPONDER4}
    iifname . ip6 saddr @askers6 meta l4proto {{ tcp, udp }} th dport 53 dnat ip6 to {RESPONDER6}
  }}
  chain ask-source {{
    type nat hook postrouting priority srcnat - 5; policy accept;
    oifname "{RESPONDER_LINK}" meta nfproto ipv4 snat ip to ip saddr
    oifname "{RESPONDER_LINK}" meta nfproto ipv6 snat ip6 to ip6 saddr
  }}
  chain ask-only {{
    type filter hook forward priority filter - 5; policy accept;
    meta l4proto {{ tcp, udp }} th dport 53 jump asker
    meta l4proto tcp ct direction original ct original proto-dst 53 jump asker
    meta l4proto udp ct direction original ct original proto-dst 53 jump asker
    oifname "{RESPONDER_LINK}" iifname != @links drop
    iifname "{RESPONDER_LINK}" ct state != {{ established, related }} drop
  }}
  chain asker {{
    oifname "{RESPONDER_LINK}" return
    iifname . ip saddr @askers4 goto refuse
    iifname . ip6 saddr @askers6 goto refuse
  }}
}}
"""


_BRIDGE: Final = f"""
table bridge {TABLE} {{
  set ports {{ type ifname; }}
  set macs {{ type ifname . ether_addr; }}
  set addresses4 {{ type ifname . ether_addr . ipv4_addr; }}
  set addresses6 {{ type ifname . ether_addr . ipv6_addr; }}
  set targets6 {{ typeof iifname . ether saddr . @th,64,128; }}
  counter spoofed {{ }}
  chain spoofed {{
    counter name spoofed
    limit rate 10/second log group {LOG_GROUP} prefix "spoofed"
    drop
  }}
  chain check {{
    ether type ip iifname . ether saddr . ip saddr @addresses4 accept
    ether type {{ 0x8100, 0x88a8 }} goto spoofed
    iifname . ether saddr != @macs goto spoofed
    ether type arp iifname . arp saddr ether . arp saddr ip @addresses4 accept
    ether type arp arp saddr ip 0.0.0.0 iifname . arp saddr ether @macs accept
    icmpv6 type {{ nd-router-advert, nd-redirect }} goto spoofed
    icmpv6 type nd-neighbor-advert iifname . ether saddr . @th,64,128 != @targets6 goto spoofed
    ip6 saddr :: icmpv6 type nd-neighbor-solicit iifname . ether saddr . @th,64,128 @targets6 accept
    ip6 saddr :: ip6 daddr ff02::/16 icmpv6 type {{ nd-router-solicit, {_MLD} }} accept
    ether type ip6 iifname . ether saddr . ip6 saddr @addresses6 accept
    goto spoofed
  }}
  chain received {{
    type filter hook prerouting priority -350; policy accept;
    iifname @ports goto check
  }}
  chain control {{
    type filter hook input priority -350; policy accept;
    iifname @ports ether daddr & ff:ff:ff:ff:ff:f0 == 01:80:c2:00:00:00 drop
  }}
  chain bridged {{
    type filter hook forward priority -350; policy accept;
    iifname @ports oifname != @ports drop
  }}
}}
"""


@lru_cache(maxsize=8)
def version_of(mark: int) -> str:
    """Return the name of a chain that no packet enters: tables that have it are those of this text, with this mark."""
    return f"version-{hashlib.sha256((_inet(mark) + _BRIDGE).encode()).hexdigest()[:12]}"


@lru_cache(maxsize=8)
def render_base(mark: int) -> str:
    """Return the text that makes both tables, without elements and policies, in place of what there is.

    Args:
        mark: The bit of a packet's mark that says that it was accepted.
    """
    version = f"chain {version_of(mark)} {{\n    return\n  }}"
    return f"""
table inet {TABLE}
table bridge {TABLE}
delete table inet {TABLE}
delete table bridge {TABLE}
{_inet(mark)}{_BRIDGE}
table inet {TABLE} {{
  {version}
}}
table bridge {TABLE} {{
  {version}
}}
"""


def chain_of(policy: Policy, subnets: Iterable[IpNetwork]) -> str:
    """Return the name of a policy's chain: the same for all containers that may reach the same."""
    return f"{_CHAIN}{hashlib.sha256(_body(policy, subnets).encode()).hexdigest()[:12]}"


def is_chain_of_policy(name: str) -> bool:
    """Return whether a name is that of the chain of a policy."""
    return name.startswith(_CHAIN)


def is_of_policy(name: str) -> bool:
    """Return whether a name is that of a chain or a set which goes with the policies that use it."""
    return name.startswith((_CHAIN, "any-", "tcp-", "udp-"))


def render_policy(policy: Policy, subnets: Iterable[IpNetwork]) -> str:
    """Return the text that makes a policy's chain, which must not exist, and the sets that its names need."""
    found = tuple(subnets)
    sets = "".join(
        f"  set {name} {{ type ipv{version}_addr . ipv{version}_addr; flags timeout; }}\n"
        for one in policy.all_ports()
        for version in (4, 6)
        if (name := set_of(one, version)) != f"names{version}"
    )
    body = _body(policy, found)
    return f"table inet {TABLE} {{\n{sets}  chain {chain_of(policy, found)} {{\n{body}  }}\n}}\n"


@lru_cache(maxsize=64)
def count_rules(text: str) -> Mapping[tuple[str, str], int]:
    """Return the number of rules in each chain of a text of this module, e.g. `{("inet", "pass"): 1}`."""
    found: dict[tuple[str, str], int] = {}
    family = chain = ""
    for line in map(str.strip, text.splitlines()):
        words = line.split()
        if words[:1] == ["table"] and words[-1] == "{":
            family = words[1]
        elif words[:1] == ["chain"] and words[-1] == "{":
            chain = words[1]
        elif line == "}":
            chain = ""
        elif chain and not line.startswith("type "):
            found[family, chain] = found.get((family, chain), 0) + 1
    return found


def is_special(network: IpNetwork) -> bool:
    """Return whether an allowed network is one of `METADATA`, or in one; larger ones do not allow what is in those."""
    return any(_is_inside(network, one) for one in METADATA)


def _body(policy: Policy, subnets: Iterable[IpNetwork]) -> str:
    return "".join(f"    {rule}\n" for rule in _rules(policy, tuple(subnets)))


def _rules(policy: Policy, subnets: tuple[IpNetwork, ...]) -> Iterator[str]:
    """Return the rules of a policy, in order: what comes first wins."""
    last = "only-log" if policy.audit else "refuse"
    yield "jump known"
    if policy.needs_responder:
        # To the responder, wherever it was sent. What conntrack finds invalid would not be redirected to it.
        yield "meta l4proto { tcp, udp } th dport 53 ct state new goto pass"
    for one in policy.host:
        yield f"fib daddr type local {_match(one)}goto pass"
    yield f"fib daddr type != unicast goto {last}"
    for subnet in subnets:
        yield f"{_family(subnet)} daddr {subnet} fib daddr oifname @inside goto pass"
    special = {rule for rule in policy.networks if is_special(rule.network)}
    yield from _networks((rule.network, rule.ports) for rule in policy.networks if rule in special)
    for family in ("ip", "ip6"):
        yield f"{family} daddr {{ {', '.join(str(one) for one in METADATA if _family(one) == family)} }} goto {last}"
    yield from _networks((rule.network, rule.ports) for rule in policy.networks if rule not in special)
    for one in policy.all_ports():
        for family, version in (("ip", 4), ("ip6", 6)):
            name = set_of(one, version)
            if name == f"names{version}":
                continue
            yield f"{_match(one)}{family} saddr . {family} daddr @{name} goto pass"
    if policy.has_names:
        yield "ip saddr . ip daddr . meta l4proto . th dport @names4 goto pass"
        yield "ip6 saddr . ip6 daddr . meta l4proto . th dport @names6 goto pass"
    yield f"goto {last}"


def _networks(rules: Iterable[tuple[IpNetwork, PortRange]]) -> Iterator[str]:
    """Return a rule for all networks that have the same ports, for each family."""
    grouped: dict[tuple[PortRange, str], list[IpNetwork]] = {}
    for network, ports in rules:
        grouped.setdefault((ports, _family(network)), []).append(network)
    for (ports, family), networks in grouped.items():
        yield f"{_match(ports)}{family} daddr {{ {', '.join(map(str, _collapsed(networks)))} }} goto pass"


def _collapsed(networks: list[IpNetwork]) -> list[IpNetwork]:
    """Return networks without those that others contain: a set of intervals refuses overlaps."""
    four = [one for one in networks if isinstance(one, IPv4Network)]
    six = [one for one in networks if isinstance(one, IPv6Network)]
    return [*collapse_addresses(four), *collapse_addresses(six)]


def _match(ports: PortRange) -> str:
    if ports.protocol is Protocol.ANY:
        return ""
    last = "" if ports.first == ports.last else f"-{ports.last}"
    return f"{ports.protocol.name.lower()} dport {ports.first}{last} "


def _family(network: IpNetwork) -> str:
    return "ip" if isinstance(network, IPv4Network) else "ip6"


def _is_inside(network: IpNetwork, other: IpNetwork) -> bool:
    if isinstance(network, IPv4Network) and isinstance(other, IPv4Network):
        return network.subnet_of(other)
    if isinstance(network, IPv6Network) and isinstance(other, IPv6Network):
        return network.subnet_of(other)
    return False
