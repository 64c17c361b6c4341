# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What must exist for an endpoint, and what each plugin's CHECK receives; pure.

**Reservations and iptables rules**, as far as the list shows them: only what plugins make by default and in the same
way in all versions, which is the reservation of `host-local`, the masquerading of `bridge` and `ptp`, the ports of
`portmap`. Everything else is for the plugins' own CHECK. Rules of a list that chooses nftables are not examined.

**CHECK** is to receive what ADD received (CNI SPEC §4), and look at what ADD made. But Docker renames a link that it
moves, such as `eth0` to `eth1`, may give it another MAC and prefix, and keeps the default route of one network only.
IPAM plugins find a reservation by the name that ADD received, the others find the link by its present name. So both run
by themselves: the IPAM plugin with the arguments of ADD, and the plugin that makes the link with the IPAM plugin
`static`, without addresses. Addresses, routes and MAC are compared by `find_differences`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, find_int, find_object, find_str, get_bool, get_list, get_objects
from cni_invoker import Attachment, NetworkConfigurationList, Result
from cni_invoker.documents.known_plugins import RULES_BY_ADDRESS
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.link.expected_link import DELEGATES
from cnm_bridge.core.link_state import IpInterface, Snapshot
from cnm_bridge.core.lists.changes import RESERVATION, ipam_configuration, with_static, without_addresses
from cnm_bridge.core.planning.ports import CAPABILITY

_BANDWIDTH: Final = "bandwidth"
"""The plugin, and its capability."""
_RATES: Final = ("ingressRate", "egressRate")
_MASQUERADING: Final = frozenset({"bridge", "ptp"})
_NFTABLES: Final = "nftables"
_COMMANDS: Final = {4: "iptables", 6: "ip6tables"}
_MARKS: Final = {4: 2, 6: 1}
_MARKING: Final = "externalSetMarkChain"
"""portmap's key for a chain of another program that marks connections, such as KUBE-MARK-MASQ."""


def is_compared(plugin: JsonObject) -> bool:
    """Return whether `find_missing_rules` replaces the CHECK of a plugin, which reports what is not missing.

    portmap looks for the rules of an IPv4 address in ip6tables as well (plugins `meta/portmap`, checkPorts).
    """
    return find_str(plugin, "type") == "portmap" and find_str(plugin, "backend") != _NFTABLES


def makes_nothing(plugin: JsonObject, capability_args: JsonObject) -> bool:
    """Return whether ADD of a plugin made nothing, so that there is nothing to check.

    `bandwidth` without any rate only returns the result before it; its CHECK crashes then (plugins 1.1.1). `portmap`
    without ports does not run.
    """
    if find_str(plugin, "type") == "portmap" and not get_list(capability_args, CAPABILITY):
        return True
    if find_str(plugin, "type") != _BANDWIDTH:
        return False
    is_declared = get_bool(find_object(plugin, "capabilities") or {}, _BANDWIDTH)
    given = (find_object(capability_args, _BANDWIDTH) or {}) if is_declared else {}
    return not any(limits.get(rate) for limits in (plugin, given) for rate in _RATES)


def find_missing_reservations(
    plugins: Iterable[JsonObject], addresses: Iterable[IpInterface], existing: Sequence[str]
) -> Iterator[str]:
    """Yield the reservations of `host-local` that do not exist, in words."""
    if any(find_str(find_object(plugin, "ipam") or {}, "type") == "host-local" for plugin in plugins):
        names = {path.rpartition("/")[2].replace("_", ":") for path in existing}
        yield from (
            f"the reservation of {address.ip} by host-local" for address in addresses if str(address.ip) not in names
        )


def find_missing_rules(
    plugins: Iterable[JsonObject],
    addresses: Sequence[IpInterface],
    capability_args: JsonObject,
    existing: Sequence[str],
    entries: Sequence[str],
) -> Iterator[str]:
    """Yield the rules that do not exist, in words.

    Args:
        plugins: The plugins of the endpoint's list.
        addresses: Its addresses.
        capability_args: What its plugins received by capability.
        existing: Its rules, as the commands that would create them.
        entries: The rules that lead from the kernel's chains to those that all endpoints share.
    """
    for plugin in plugins:
        name = find_str(plugin, "type") or "?"
        if name in _MASQUERADING and get_bool(plugin, "ipMasq"):
            if find_str(plugin, "ipMasqBackend") != _NFTABLES:
                yield from _missing_masquerading(name, addresses, existing)
        elif is_compared(plugin):
            ports = _ports(capability_args)
            yield from _missing_ports(plugin, ports, addresses, existing)
            yield from _missing_entries(plugin, ports, addresses, entries)


def _ports(capability_args: JsonObject) -> Sequence[JsonObject]:
    return get_objects(capability_args, CAPABILITY) if CAPABILITY in capability_args else ()


def _missing_masquerading(plugin: str, addresses: Iterable[IpInterface], existing: Sequence[str]) -> Iterator[str]:
    for address in addresses:
        command = _COMMANDS[address.version]
        jump = f"{command} -t nat -A POSTROUTING -s {address.ip}/{address.max_prefixlen} "
        if not any(rule.startswith(jump) for rule in existing):
            yield f"the rule of {plugin} in POSTROUTING that masquerades {address.ip}"
        elif not any(rule.startswith(f"{command} -t nat -A CNI-") and "-j MASQUERADE" in rule for rule in existing):
            yield f"the rule of {plugin} that masquerades, in the chain for {address.ip}"


def _missing_ports(
    plugin: JsonObject, ports: Sequence[JsonObject], addresses: Sequence[IpInterface], existing: Sequence[str]
) -> Iterator[str]:
    """Yield the missing rules of portmap: those of each port, and the one that leads to them.

    For each port and family there is one that changes the destination, and, unless `snat` is false, those that mark
    connections from the containers' subnet, and from the host's loopback address if the family is IPv4.
    """
    marks, marking = get_bool(plugin, "snat", default=True), find_str(plugin, _MARKING) or "CNI-HOSTPORT-SETMARK"
    for address in addresses:
        start = f"{_COMMANDS[address.version]} -t nat -A "
        published = [port for port in ports if _is_for(port, address.version)]
        for port in published:
            number, protocol = find_int(port, "hostPort"), find_str(port, "protocol") or "tcp"
            words = f"{start}CNI-DN-", f"-p {protocol}", f"--dport {number} "
            rules = [rule for rule in existing if all(word in rule for word in words)]
            marked = sum(rule.endswith(f" -j {marking}") for rule in rules)
            if not any("-j DNAT" in rule for rule in rules):
                yield f"the rule of portmap for port {number}/{protocol} of {address.ip}"
            elif marks and marked < _MARKS[address.version]:
                yield f"a rule of portmap that marks connections to port {number}/{protocol} of {address.ip}"
        if published and not any(rule.startswith(f"{start}CNI-HOSTPORT-DNAT ") for rule in existing):
            yield f"the rule of portmap in CNI-HOSTPORT-DNAT that leads to the ports of {address.ip}"


def _missing_entries(
    plugin: JsonObject, ports: Sequence[JsonObject], addresses: Sequence[IpInterface], entries: Sequence[str]
) -> Iterator[str]:
    """Yield the missing rules through which packets get to the chains of portmap, once for all its endpoints."""
    expected = [("PREROUTING", "CNI-HOSTPORT-DNAT"), ("OUTPUT", "CNI-HOSTPORT-DNAT")]
    if get_bool(plugin, "snat", default=True) and find_str(plugin, _MARKING) is None:
        expected.append(("POSTROUTING", "CNI-HOSTPORT-MASQ"))
    for version in sorted(
        {address.version for address in addresses if any(_is_for(port, address.version) for port in ports)}
    ):
        for chain, target in expected:
            start = f"{_COMMANDS[version]} -t nat -A {chain} "
            if not any(rule.startswith(start) and rule.endswith(f" -j {target}") for rule in entries):
                yield f"the rule of portmap in {chain} ({_COMMANDS[version]}) that leads to {target}, for all endpoints"


def _is_for(port: JsonObject, version: int) -> bool:
    """Return whether a port is published in an address family: in both, unless an address of the host is given."""
    host = find_str(port, "hostIP")
    return not host or ip_address(host).version == version


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCheck:
    """One execution of CHECK."""

    type: str
    network: NetworkConfigurationList
    attachment: Attachment
    result: Result | None


def plan_checks(endpoint: Endpoint, current: Snapshot) -> Iterator[PluginCheck]:
    """Yield the executions of CHECK for a joined endpoint, in the order of its list."""
    record = endpoint.record
    netns = endpoint.netns if record.attachment.mode.in_sandbox or endpoint.sandbox is None else endpoint.sandbox
    as_added = endpoint.attachment_in(netns)
    present = replace(as_added, ifname=current.link.name)
    result = None if endpoint.result is None else _with_current_link(endpoint.result, str(netns), current)

    for index, plugin in enumerate(endpoint.chain.plugins):
        if is_compared(plugin.document) or makes_nothing(plugin.document, record.attachment.capability_args):
            continue
        if endpoint.snapshot is None and plugin.type not in RULES_BY_ADDRESS:
            continue  # the result of its ADD is lost, except for the addresses
        if index or result is None or plugin.type not in DELEGATES:
            yield _check(endpoint, plugin.document, present, result)
            continue
        if endpoint.reservation is not None:
            reserving = replace(endpoint.attachment_of(RESERVATION, netns=netns), netns=str(netns))
            yield _check(endpoint, endpoint.reservation.plugins[0].document, reserving, result)
        elif plugin.ipam_type is not None:
            yield _check(endpoint, ipam_configuration(plugin), as_added, result)
        bare = Result.from_document({**result.document, "ips": [], "routes": []})
        without = replace(present, args=without_addresses(present.args))
        yield _check(endpoint, with_static(plugin, bare), without, bare)


def _check(endpoint: Endpoint, plugin: JsonObject, attachment: Attachment, result: Result | None) -> PluginCheck:
    network = NetworkConfigurationList.from_document({**endpoint.chain.document, "plugins": [plugin]})
    return PluginCheck(type=network.plugins[0].type, network=network, attachment=attachment, result=result)


def _with_current_link(result: Result, netns: str, current: Snapshot) -> Result:
    """Return the result of ADD with the present name, MAC and namespace of the link."""
    present = {"name": current.link.name, **({} if current.link.mac is None else {"mac": current.link.mac})}
    interfaces: list[JsonValue] = [
        {**interface, **present, "sandbox": netns} if find_str(interface, "sandbox") else interface
        for interface in get_objects(result.document, "interfaces")
    ]
    changed = {"interfaces": interfaces} if "interfaces" in result.document else {}
    return Result.from_document({**result.document, **changed})
