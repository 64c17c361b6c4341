# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plans holds: the addresses and the MAC of a key (`cni.sticky`), which outlive the container that has them; pure.

The IPAM plugin of the list reserves them under an ID of the hold's own, and is not asked again: each container with the
key receives them from the IPAM plugin `static`, as in mode *hybrid* (`core/model/reserved_list.py`). So the hold is
never handed over, and nothing else can get an address between two containers (docs/decisions, 56).
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from ipaddress import ip_interface
from typing import Final

from cni_bridge_spec import JsonObject, find_object
from cni_bridge_state import HoldChange, HoldPhase, HoldRecord, ReservationRecord
from cni_invoker import NetworkConfigurationList, Result
from cni_invoker.advanced import with_plugins
from cnm_bridge.core.errors import NULL_IPAM, Refused, endpoint_option
from cnm_bridge.core.model.dhcp import find_dhcp
from cnm_bridge.core.model.reserved_list import with_reservation, without_addresses
from cnm_bridge.core.planning.addresses.address_ranges import find_ranges
from cnm_bridge.core.planning.addresses.addressing import plan_addresses, plan_mac
from cnm_bridge.core.planning.attach_choice import STATIC, AttachRequest, can_choose_mac, find_obstacle
from cnm_bridge.core.planning.identity import ANY_ARGS
from cnm_bridge.core.planning.mac import address_mac
from cnm_bridge.core.planning.options.cni_options import STICKY
from cnm_bridge.core.planning.plan import Plan

_IPAM: Final = "ipam"


def refuse_unheld(request: AttachRequest, static_versions: Collection[str] | None) -> None:
    """Refuse a key if no address can be held for it.

    Raises:
        Refused: Docker's IPAM chooses the addresses, or the list's IPAM plugin needs a link or reserves nothing.
    """
    network = request.network
    if request.has_pool:
        raise Refused(
            f"{STICKY} is not possible: Docker's IPAM chooses the addresses of this network; give --ip, or make the "
            f"network with {NULL_IPAM}"
        )
    if find_dhcp(network) is not None:
        raise Refused(
            f"{STICKY} is not possible for CNI configuration {network.name}: only its DHCP server can hold an address; "
            f"give {endpoint_option('cni.dhcp.client-id', 'KEY')}, with which it gives the same one again"
        )
    obstacle = find_obstacle(network, static_versions)
    if network.plugins[0].ipam_type == STATIC:
        obstacle = f"IPAM plugin {STATIC} reserves no address"
    if obstacle is not None:
        raise Refused(
            f"{STICKY} is not possible for CNI configuration {network.name}: {obstacle}; give cni.ips and "
            "--mac-address instead"
        )


def plan_hold(plan: Plan, netns: str, addresses: Sequence[str] = ()) -> ReservationRecord:
    """Return what the IPAM plugin receives: what it would for a container, without the rest of the list.

    Args:
        plan: The plan of the first container, or of another one.
        netns: The namespace that the plugin receives.
        addresses: The addresses that the key has already.
    """
    wanted = [ip_interface(address).ip for address in addresses]
    addressing = plan_addresses(plan.configuration, wanted, (), internal=False)
    network = with_reservation(addressing.configuration, None)
    return ReservationRecord(
        netns=netns,
        configuration=with_plugins(network, network.plugins[:1]).document,
        args=plan.args,
        capability_args={**plan.capability_args, **addressing.capability_args},
    )


def plan_again(record: HoldRecord) -> ReservationRecord:
    """Return what the IPAM plugin receives to reserve again what a key has, with the section that it had before."""
    wanted = [ip_interface(address).ip for address in record.addresses]
    addressing = plan_addresses(_network_of(record), wanted, (), internal=False)
    return replace(
        record.reservation,
        configuration=addressing.configuration.document,
        capability_args={**record.reservation.capability_args, **addressing.capability_args},
        result=None,
    )


def hold_mac(plan: Plan, result: Result, find_holders: Callable[[str], Sequence[str]]) -> str | None:
    """Return the MAC of a new hold: the user's or the list's, or one made of its first address.

    It is None if links have no own one.

    Args:
        plan: The plan of the key's first container.
        result: What the IPAM plugin has reserved.
        find_holders: Returns the endpoints on the network that have a MAC.
    """
    chosen = plan.requested.mac or plan.own_mac
    if chosen:
        return chosen.lower()
    if not result.ips or not can_choose_mac(plan.configuration):
        return None
    return address_mac(plan.configuration.name, result.ips[0].address, find_holders)


def change_of(plan: Plan) -> HoldChange:
    """Return what the container of a plan changes about what its key has, when it is attached."""
    mac = plan.requested.mac
    return HoldChange(mac=mac.lower() if mac else None, keep_s=plan.options.sticky_for)


def confirmed(record: HoldRecord, change: HoldChange) -> HoldRecord:
    """Return what a key has when its container is attached."""
    return replace(record, mac=change.mac or record.mac, keep_s=change.keep_s, change=None, expires_at=None)


def without_holder(record: HoldRecord, now_s: float) -> HoldRecord:
    """Return what a key has when its endpoint is gone. If that was not attached, the time goes on as before it."""
    expires_at = record.expires_at
    if expires_at is None and record.keep_s is not None:
        expires_at = int(now_s) + record.keep_s
    return replace(record, holder=None, change=None, expires_at=expires_at)


def is_renewed(record: HoldRecord) -> bool:
    """Return whether what a key has is being reserved again."""
    return record.phase is HoldPhase.PENDING and bool(record.addresses)


def is_current(plan: Plan, record: HoldRecord) -> bool:
    """Return whether the list on disk has the IPAM section with which a hold was reserved."""
    return _ipam_of(plan.configuration.document) == _ipam_of(record.reservation.configuration)


def refuse_changed_hold(plan: Plan, record: HoldRecord) -> None:
    """Refuse a container that wants other addresses than its key has, or whose list no longer has them.

    Raises:
        Refused: It names the key, its addresses, and the command that releases them.
    """
    has, remedy = describe_hold(record), release_it(record)
    held = [ip_interface(address) for address in record.addresses]
    for wanted in plan.addresses:
        if not any(wanted in {one, one.ip} for one in held):
            raise Refused(f"{has}, and cni.ips asks for {wanted}; leave out cni.ips, or {remedy}")
    if is_current(plan, record):
        return
    ranges = find_ranges(plan.configuration)
    if not ranges or not find_ranges(_network_of(record)):
        raise Refused(
            f"{has}, and CNI configuration {record.section} has another IPAM section since; put the old one back, or "
            f"{remedy}"
        )
    for one in held:
        if not any(found.contains(one.ip) and one.ip != found.gateway for found in ranges):
            raise Refused(
                f"{has}, and the ranges of CNI configuration {record.section} no longer have {one.ip}; put them back, "
                f"or {remedy}"
            )


def refused_again(record: HoldRecord, reason: Exception, consequence: str) -> Refused:
    """Return the error of a container whose key keeps its addresses, because the plugin does not reserve them again.

    Args:
        record: What the key has.
        reason: The plugin's error.
        consequence: What has become of the addresses.
    """
    return Refused(
        f"{describe_hold(record)}, and the IPAM plugin of CNI configuration {record.section} refuses to reserve that "
        f"again: {reason}; {consequence}; if the IPAM section was changed, put it back; or {release_it(record)}"
    )


def describe_hold(record: HoldRecord) -> str:
    """Return what a key has, in words."""
    return f"key {record.key} has {', '.join(record.addresses)}"


def release_it(record: HoldRecord) -> str:
    """Return what an operator can do if the key must not keep what it has, in words."""
    return f"`cni-bridge release --sticky {record.key}` releases what the key has"


def with_hold(plan: Plan, record: HoldRecord) -> Plan:
    """Return the plan of a container that receives the addresses and the MAC of its key."""
    reserved = Result.from_document(record.reservation.result or {})
    network = with_reservation(plan.configuration, reserved)
    configuration = with_plugins(network, network.plugins[1:])
    args, capability_args = dict(without_addresses(plan.args)), dict(plan.capability_args)
    mac = plan.requested.mac or plan.own_mac or record.mac
    mac_plan = None if mac is None else plan_mac(configuration, mac)
    if mac_plan is not None:
        args |= dict(mac_plan.args)
        capability_args |= mac_plan.capability_args
    return replace(
        plan,
        configuration=configuration,
        args=tuple({**dict(ANY_ARGS), **args}.items()) if args else (),
        capability_args=capability_args,
        addresses=tuple(ip.address.ip for ip in reserved.ips),
        own_mac=None if plan.requested.mac else mac,
    )


def _network_of(record: HoldRecord) -> NetworkConfigurationList:
    return NetworkConfigurationList.from_document(record.reservation.configuration)


def _ipam_of(document: JsonObject) -> JsonObject | None:
    plugins = NetworkConfigurationList.from_document(document).plugins
    return find_object(plugins[0].document, _IPAM)
