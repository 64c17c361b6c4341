# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The first record of an endpoint, and what the plugins made beside the plan; pure.

The plan has more than what plugins receive, such as sysctls. Each endpoint has one attachment, with the endpoint's ID,
or with one derived from its DHCP client identifier.
"""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path

from cni_bridge_spec import JsonObject
from cni_bridge_state import (
    AttachmentId,
    AttachmentRecord,
    AttachMode,
    EndpointId,
    EndpointRecord,
    NetworkId,
    Phase,
    ProcessRecord,
    RequestedInterface,
)
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.endpoint import STAGING_IFNAME, pin_path, staging_path
from cnm_bridge.core.errors import NULL_IPAM, Refused
from cnm_bridge.core.link.endpoint_replies import choose_interface
from cnm_bridge.core.link.expected_link import refuse_missing_addresses, with_mac
from cnm_bridge.core.link_state import Snapshot, Sysctl
from cnm_bridge.core.lists.dhcp import attachment_with_identifier
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.planning.ports import ANY_PORT
from cnm_bridge.core.wire import CreateEndpoint


def planned_record(
    request: CreateEndpoint,
    plan: Plan,
    caller: ProcessRecord | None,
    *,
    run_dir: Path,
    boot_id: str,
    now_s: float,
) -> EndpointRecord:
    """Return the record of an endpoint to be created; it is stored before anything is done."""
    mode = plan.attach.mode
    attachment_id = AttachmentId(request.endpoint_id)
    if plan.options.client_id is not None:
        attachment_id = attachment_with_identifier(plan.configuration.name, plan.options.client_id)
    attachment = AttachmentRecord(
        id=attachment_id,
        mode=mode,
        mode_reason=plan.attach.reason,
        ifname=plan.ifname,
        netns=str(staging_path(run_dir, attachment_id)),
        configuration=plan.configuration.document,
        cni_version=plan.configuration.cni_version,
        args=plan.args,
        capability_args=plan.capability_args,
        identity=plan.options.identity,
        sticky=plan.sticky,
    )
    return EndpointRecord(
        id=request.endpoint_id,
        network_id=request.network_id,
        phase=Phase.PENDING,
        boot_id=boot_id,
        internal=plan.internal,
        requested=request.requested,
        attachment=attachment,
        deleted=_without_delete(mode, len(plan.configuration.plugins)),
        ifname_prefix=plan.options.ifname_prefix,
        caller=caller,
        created_at=int(now_s),
        configuration_digest=plan.source_digest,
    )


def rebuilt_record(
    endpoint_id: EndpointId,
    *,
    network_id: NetworkId,
    phase: Phase,
    internal: bool,
    configuration: NetworkConfigurationList,
    addresses: Sequence[str],
    mac: str | None,
    run_dir: Path,
    boot_id: str,
    pinned_link: str | None = None,
    sandbox_key: str | None = None,
) -> EndpointRecord:
    """Return a record of an endpoint whose own was lost: enough for a DEL that undoes what its plugins did.

    Plugins find what they made by the endpoint's ID, by its addresses and by its link's name. If its sandbox is
    pinned, its plugins ran there and made the link `pinned_link`; DEL of the whole list then includes that of an
    IPAM plugin that ran at CreateEndpoint.
    """
    attachment_id, is_pinned = AttachmentId(endpoint_id), pinned_link is not None
    attachment = AttachmentRecord(
        id=attachment_id,
        mode=AttachMode.DIRECT if is_pinned else AttachMode.MOVE,
        mode_reason=f"its record was lost, and its sandbox is {'pinned' if is_pinned else 'not pinned'}",
        ifname=pinned_link or STAGING_IFNAME,
        netns=str((pin_path if is_pinned else staging_path)(run_dir, attachment_id)),
        configuration=configuration.document,
        cni_version=configuration.cni_version,
        args=(),
        capability_args=ANY_PORT,
    )
    interface: JsonObject = {
        "name": attachment.ifname,
        "sandbox": attachment.netns,
        **({"mac": mac} if mac else {}),
    }
    return EndpointRecord(
        id=endpoint_id,
        network_id=network_id,
        phase=phase,
        boot_id=boot_id,
        internal=internal,
        requested=RequestedInterface(),
        attachment=attachment,
        added_plugins=len(configuration.plugins),
        result={
            "cniVersion": "1.0.0",
            "interfaces": [interface],
            "ips": [{"address": str(ip_interface(address)), "interface": 0} for address in addresses],
            "dns": {},
        },
        addresses=tuple(str(ip_interface(address).ip) for address in addresses),
        sandbox_key=sandbox_key,
    )


def _without_delete(mode: AttachMode, plugins: int) -> tuple[int, ...]:
    """Return the indexes of the plugins that do not run at CreateEndpoint, so that no DEL is pending for them."""
    match mode:
        case AttachMode.MOVE:
            return ()
        case AttachMode.HYBRID:  # the IPAM plugin, which does, precedes all others
            return tuple(range(1, plugins + 1))
        case AttachMode.DIRECT:
            return tuple(range(plugins))


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
    """Refuse a result in which plugins ignored a requested value, or that Docker would configure differently."""
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
