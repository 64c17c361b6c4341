# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What must exist for an endpoint, and what each plugin's CHECK receives; pure.

**iptables rules**: those of `bridge` and `ptp` that masquerade, which their CHECK does not look for (plugins 1.1.1 and
1.9.1), and those of `portmap`, whose CHECK reports what is there (1.1.1). One rule of each plugin and family is looked
for, which leads to all others of the container. Rules of nftables are not examined.

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

from cni_bridge_spec import JsonObject, JsonValue, find_object, find_str, get_bool, get_list, get_objects
from cni_invoker import Attachment, NetworkConfigurationList, Result
from cni_invoker.documents.known_plugins import RULES_BY_ADDRESS
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.link.expected_link import DELEGATES
from cnm_bridge.core.link_state import IpInterface, Snapshot
from cnm_bridge.core.lists.changes import RESERVATION, ipam_configuration, with_static, without_addresses
from cnm_bridge.core.planning.ports import CAPABILITY

_BANDWIDTH: Final = "bandwidth"  # the plugin, and its capability
_RATES: Final = ("ingressRate", "egressRate")
_MASQUERADING: Final = frozenset({"bridge", "ptp"})
_NFTABLES: Final = "nftables"
_COMMANDS: Final = {4: "iptables", 6: "ip6tables"}


def is_compared(plugin: JsonObject) -> bool:
    """Return whether `find_missing_rules` replaces the CHECK of a plugin, which reports what is not missing.

    portmap looks for the rules of an IPv4 address in ip6tables as well (plugins `meta/portmap`, checkPorts). Only its
    jump in CNI-HOSTPORT-DNAT is looked for instead, not the rules of each port behind it.
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


def find_missing_rules(
    plugins: Iterable[JsonObject],
    addresses: Sequence[IpInterface],
    capability_args: JsonObject,
    existing: Sequence[str],
) -> Iterator[str]:
    """Yield the rules that do not exist, in words; `existing` are the commands that would create the others."""
    ports = get_objects(capability_args, CAPABILITY) if CAPABILITY in capability_args else ()
    for plugin in plugins:
        for address in addresses:
            if _masquerades(plugin):
                chain, match = "POSTROUTING", f"-s {address.ip}/{address.max_prefixlen} "
            elif is_compared(plugin) and any(_is_for(port, address.version) for port in ports):
                chain, match = "CNI-HOSTPORT-DNAT", ""
            else:
                continue
            command = f"{_COMMANDS[address.version]} -t nat -A {chain} {match}"
            if not any(rule.startswith(command) for rule in existing):
                yield f"the rule of {find_str(plugin, 'type')} in {chain} for {address.ip}"


def _masquerades(plugin: JsonObject) -> bool:
    is_nftables = find_str(plugin, "ipMasqBackend") == _NFTABLES
    return find_str(plugin, "type") in _MASQUERADING and get_bool(plugin, "ipMasq") and not is_nftables


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
