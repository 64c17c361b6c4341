# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What each plugin's CHECK receives; pure.

CHECK is to receive what ADD received (CNI SPEC §4), and look at what ADD made. But Docker renames a link that it moves,
such as `eth0` to `eth1`, may give it another MAC and prefix, and keeps the default route of one network only. IPAM
plugins find a reservation by the name that ADD received, the others find the link by its present name. So both run by
themselves: the IPAM plugin with the arguments of ADD, and the plugin that makes the link with the IPAM plugin `static`,
without addresses. Addresses, routes and MAC are compared by `find_differences`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cni_bridge_spec import JsonObject, JsonValue, find_str, get_objects
from cni_invoker import Attachment, NetworkConfigurationList, Result
from cni_invoker.documents.known_plugins import RULES_BY_ADDRESS
from cnm_bridge.core.link_state import Snapshot
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.model.reserved_list import RESERVATION, ipam_configuration, with_static, without_addresses
from cnm_bridge.core.planning.expected_artifacts import is_compared, makes_nothing
from cnm_bridge.core.planning.link.expected_link import DELEGATES


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCheck:
    """One execution of CHECK.

    Attributes:
        type: The plugin's type.
        network: A list with this plugin only.
        attachment: The attachment that it receives.
        result: The result that it receives.
    """

    type: str
    network: NetworkConfigurationList
    attachment: Attachment
    result: Result | None


def plan_checks(endpoint: Endpoint, found: Snapshot) -> Iterator[PluginCheck]:
    """Yield the executions of CHECK for a joined endpoint, in the order of its list.

    Args:
        endpoint: The endpoint, which has a sandbox.
        found: What the sandbox has now.
    """
    record = endpoint.record
    netns = endpoint.netns if record.attachment.mode.in_sandbox or endpoint.sandbox is None else endpoint.sandbox
    as_added = endpoint.attachment_in(netns)
    present = replace(as_added, ifname=found.link.name)
    result = None if endpoint.result is None else _as_found(endpoint.result, str(netns), found)

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


def _as_found(result: Result, netns: str, found: Snapshot) -> Result:
    """Return the result of ADD with the present name, MAC and namespace of the link."""
    present = {"name": found.link.name, **({} if found.link.mac is None else {"mac": found.link.mac})}
    interfaces: list[JsonValue] = [
        {**one, **present, "sandbox": netns} if find_str(one, "sandbox") else one
        for one in get_objects(result.document, "interfaces")
    ]
    changed = {"interfaces": interfaces} if "interfaces" in result.document else {}
    return Result.from_document({**result.document, **changed})
