# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compares what the plugins made with the plan, and adds what the plan has beyond them; pure."""

from dataclasses import replace

from cni_bridge_state import RequestedInterface
from cnm_bridge.core.errors import NULL_IPAM, Refused
from cnm_bridge.core.link.endpoint_replies import choose_interface
from cnm_bridge.core.link.expected_link import refuse_missing_addresses, with_mac
from cnm_bridge.core.link_state import Snapshot, Sysctl
from cnm_bridge.core.planning.plan import Plan


def with_sysctls(plan: Plan, snapshot: Snapshot) -> Snapshot:
    """Return the plugins' snapshot with the sysctls of the endpoint's options, which override those of the plugins."""
    settings = {sysctl.name: sysctl.value for sysctl in snapshot.sysctls}
    settings |= {setting.path(snapshot.link.name): setting.value for setting in plan.options.sysctls}
    return replace(snapshot, sysctls=tuple(Sysctl(name=name, value=value) for name, value in settings.items()))


def with_moved_mac(plan: Plan, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot of a link that Docker moves, with the MAC that Docker gives it."""
    mac = plan.requested.mac or plan.own_mac
    if mac is None or choose_interface(snapshot, RequestedInterface()).mac is None:
        return snapshot
    return with_mac(snapshot, mac.lower())


def refuse_ignored(plan: Plan, snapshot: Snapshot) -> None:
    """Refuse a result in which plugins ignored a requested value.

    Raises:
        Refused: An address or the MAC differs; or Docker would configure an address differently from the plugins.
    """
    name = plan.configuration.name
    refuse_missing_addresses(plan.configuration, plan.addresses, snapshot)
    chosen = choose_interface(snapshot, RequestedInterface())
    for address, made in (
        (plan.requested.address, chosen.address),
        (plan.requested.address_ipv6, chosen.address_ipv6),
    ):
        if address is not None and address != made:
            raise Refused(
                f"Docker's IPAM chose {address}, but the plugins of CNI configuration {name} assigned {made}, and "
                f"Docker would not know; make the network with {NULL_IPAM}, or from Engine 28 on with --ipv4=false"
            )
    mac = plan.requested.mac
    if mac and snapshot.link.mac != mac.lower() and (plan.passes_mac or chosen.mac is None):
        reason = "ignored the requested MAC" if plan.passes_mac else "makes links whose MAC cannot be set"
        raise Refused(
            f"CNI configuration {name} {reason}: the link has MAC {snapshot.link.mac}, not {mac}; leave out "
            "--mac-address"
        )
