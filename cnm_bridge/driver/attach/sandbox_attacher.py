# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attacher of mode *sandbox*, by *hybrid* or *direct*: plugins run in the sandbox itself, at Join.

No namespace move is needed, neither by us nor by libnetwork, and whatever plugins make in the sandbox stays as it is.

```
hybrid    CreateEndpoint: the IPAM plugin; Docker learns the addresses     Join: all others, in the sandbox
direct    CreateEndpoint: nothing; Docker does not learn the addresses     Join: all plugins, in the sandbox
```

If the link cannot be made in the sandbox, a *hybrid* endpoint changes to mode *move*: its plugins run in a
staging namespace at Join, with the reserved addresses, and libnetwork moves the link. See `place_finder.py`.
"""

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface, IPv6Interface
from pathlib import Path

import structlog

from cni_bridge_state import AttachMode, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Result, Runtime
from cnm_bridge.core.endpoint import Endpoint, pin_path, staging_path
from cnm_bridge.core.errors import KernelError, LinkMissing, Refused
from cnm_bridge.core.link.endpoint_replies import choose_interface, describe_join, given_addresses, with_addresses
from cnm_bridge.core.link.expected_link import (
    ANY_PLUGIN,
    DELEGATES,
    describe_expected,
    known_families,
    refuse_changed,
    refuse_missing_addresses,
    snapshot_for_join,
    snapshot_for_move,
)
from cnm_bridge.core.link.plan_sandbox import disables_ipv6, without_ipv6
from cnm_bridge.core.link_state import IpInterface, Snapshot, Sysctl
from cnm_bridge.core.lists.plugins import keeps_ipv6
from cnm_bridge.core.planning.addressing import parse_addresses, requested_addresses
from cnm_bridge.core.planning.mac import receives_mac
from cnm_bridge.core.planning.plan import Plan, with_endpoint_mac
from cnm_bridge.core.planning.records import refuse_ignored
from cnm_bridge.core.wire import ChosenInterface, Joined
from cnm_bridge.driver.attach.attacher import DeleteProgress
from cnm_bridge.driver.attach.detachers import SandboxDetacher
from cnm_bridge.driver.attach.leases import Leases
from cnm_bridge.driver.attach.move_attacher import MoveAttacher, run_add, snapshot_of, warn_of_dns
from cnm_bridge.driver.attach.place_finder import PlaceFinder, refuse_to_move, why_no_link
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.system.kernel import Finish, Kernel, Pin, StagedLink, is_namespace
from cnm_bridge.system.scheduling import KeyedLocks

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxAttacher:
    """Attaches in the sandbox (`state.AttachMode.HYBRID` and `DIRECT`)."""

    store: Store
    runtime: Runtime
    kernel: Kernel
    places: PlaceFinder
    move: MoveAttacher
    detacher: SandboxDetacher
    leases: Leases
    sandbox_sync: SandboxSync
    run_dir: Path
    _sandboxes: KeyedLocks[str | None] = field(default_factory=KeyedLocks, init=False)

    async def prepare(self, record: EndpointRecord, plan: Plan) -> EndpointRecord:
        """Run the IPAM plugin, if it is known, and describe the link that will be made."""
        endpoint = Endpoint(record)
        ifname, reservation = record.attachment.ifname, endpoint.reservation
        delegate = DELEGATES.get(plan.configuration.plugins[0].type, ANY_PLUGIN)
        if reservation is None:
            await self.leases.find_daemon(endpoint)  # without one, every ADD would fail
            addresses = tuple(
                address for address in plan.addresses if isinstance(address, IPv4Interface | IPv6Interface)
            )
        else:
            # Its name shows that the reservation is ours, even if the record is lost.
            self._pin(record).prepare()
            reserved = await self.runtime.add(reservation, endpoint.attachment)
            addresses = tuple(ip.address for ip in reserved.ips)
            plan = with_endpoint_mac(plan, record.id)
            attachment = replace(record.attachment, reservation=reserved.document, capability_args=plan.capability_args)
            record = replace(record, added_plugins=1, result=reserved.document, attachment=attachment)
        chosen = plan.requested.mac or plan.own_mac
        mac = chosen.lower() if chosen and delegate.has_own_mac else None  # as the kernel shows it
        sysctls = [Sysctl(name=setting.path(ifname), value=setting.value) for setting in plan.options.sysctls]
        snapshot = describe_expected(delegate, ifname, addresses, mac, sysctls)
        if reservation is not None:
            refuse_ignored(plan, snapshot)
        if plan.without_ipv6:
            snapshot = without_ipv6(snapshot)
        record = with_addresses(replace(record, phase=Phase.READY, snapshot=snapshot.to_json()))
        await self.store.put_endpoint(record)
        return record

    def create_reply(self, record: EndpointRecord) -> ChosenInterface:
        """Return the reserved addresses and the MAC that the link will have; nothing with *direct*."""
        return choose_interface(snapshot_of(Endpoint(record)), record.requested)

    async def attach(self, record: EndpointRecord) -> EndpointRecord:
        """Run the plugins in the sandbox, or in a staging namespace if that is not possible."""
        if record.phase is Phase.JOINED:
            return record
        async with self._sandboxes.hold(record.sandbox_key):  # two endpoints must not both find it without a link
            return await self._attach(record)

    async def _attach(self, record: EndpointRecord) -> EndpointRecord:
        has_left = record.added_plugins > int(record.attachment.has_reservation)
        if has_left and Path(record.attachment.netns) == staging_path(self.run_dir, record.attachment.id):
            return await self._join_again(record)
        place = await self.places.find(record)
        record = place.identify(record)
        if place.obstacle is not None:
            return await self._move_instead(record, place.obstacle)
        pin = self._pin(record)
        if not await pin.make(record.sandbox):
            return await self._move_instead(record, why_no_link(record))
        expected = snapshot_of(Endpoint(record))
        joining = replace(_with_chain(record, pin.path), phase=Phase.JOINING, first_process=place.owner.first_process)
        try:
            await self.store.put_endpoint(joining)
        except BaseException:
            await _restore(pin)
            raise
        return await self._run_in_sandbox(joining, pin, expected, place.link_local)

    def join_reply(self, record: EndpointRecord) -> Joined:
        """Return the gateways: libnetwork adds the default routes for the container's gateway endpoint."""
        joined = describe_join(snapshot_of(Endpoint(record)), "", prefix=record.ifname_prefix, internal=record.internal)
        return replace(joined, link=None, routes=())

    def joined_record(self, record: EndpointRecord) -> EndpointRecord:
        """Return the record of an endpoint whose plugins have all run, in the pinned sandbox or in staging."""
        pin = pin_path(self.run_dir, record.attachment.id)
        is_pinned = is_namespace(pin)
        joined = _with_chain(record, pin if is_pinned else staging_path(self.run_dir, record.attachment.id))
        plugins = len(Endpoint(joined).network.plugins)
        joined = replace(joined, phase=Phase.JOINED, added_plugins=plugins)
        return joined if is_pinned else _as_moved(joined, "its record was out of date, and its sandbox is not pinned")

    async def leave(self, record: EndpointRecord) -> EndpointRecord:
        """Take the link out of a sandbox in which processes are running; in an empty one it stays until DEL."""
        left = replace(record, phase=Phase.READY)
        try:
            if not await self.places.is_inhabited(record):
                return left
            endpoint = Endpoint(record)
            await self.detacher.undo_before_link(endpoint)
            pin, staging = Path(record.attachment.netns), staging_path(self.run_dir, record.attachment.id)
            await self._staged_link(endpoint, staging).bring_back(
                sandbox=pin,
                addresses=endpoint.result.addresses_of(record.attachment.ifname) if endpoint.result else None,
                is_device=endpoint.has_device,
                device=endpoint.device,
            )
            await self.kernel.remove_staging(pin)
        except KernelError as exc:
            log.warning("endpoint.not_withdrawn", endpoint_id=record.id, error=str(exc))
            return left
        return replace(left, attachment=replace(record.attachment, netns=str(staging)))

    async def detach(self, record: EndpointRecord, progress: DeleteProgress) -> str:
        """Run DEL through the pin, and remove the pin."""
        return await self.detacher.detach(record, progress)

    def prepare_again(self, record: EndpointRecord) -> None:
        """Make the file of the pin again, if there is a reservation."""
        if record.attachment.has_reservation:
            self._pin(record).prepare()

    async def _run_in_sandbox(
        self, record: EndpointRecord, pin: Pin, expected: Snapshot, link_local: tuple[IpInterface, ...]
    ) -> EndpointRecord:
        endpoint = Endpoint(record)

        reserved = int(record.attachment.has_reservation)

        async def save_result(result: Result, added_plugins: int) -> None:
            nonlocal record
            record = with_addresses(replace(record, added_plugins=reserved + added_plugins, result=result.document))
            if record.added_plugins < len(endpoint.network.plugins):  # that of the last to run is stored with the phase
                await self.store.put_endpoint(record)

        before = await self.leases.find_daemon(endpoint)
        add = self.leases.add(endpoint, endpoint.chain, save_result)
        result = await run_add(self.kernel, endpoint.chain, add)
        # a daemon that has been restarted meanwhile may not have the lease
        holder = before if before == await self.leases.find_daemon(endpoint) else None
        warn_of_dns(record)
        snapshot = await self._finish(endpoint, pin, expected, link_local)
        if endpoint.reserved is None:
            requested = requested_addresses(endpoint.network, (), endpoint.attachment.capability_args)
            sticky = record.attachment.sticky
            may_differ = parse_addresses(sticky.addresses) if sticky is not None else frozenset()
            known = {address.ip for address in given_addresses(expected)}
            refuse_missing_addresses(endpoint.network, requested - may_differ | known, snapshot)
        else:
            refuse_changed(endpoint.network, endpoint.reserved, result, snapshot)
        allowed = without_ipv6(snapshot) if disables_ipv6(snapshot) else snapshot
        left_to_docker = snapshot_for_join(allowed, known_families(expected))
        joined = replace(record, phase=Phase.JOINED, snapshot=left_to_docker.to_json(), lease_holder=holder)
        record = with_addresses(joined)
        await self.store.put_endpoint(record)
        self.sandbox_sync.join(Endpoint(record))
        return record

    async def _finish(
        self, endpoint: Endpoint, pin: Pin, expected: Snapshot, link_local: tuple[IpInterface, ...]
    ) -> Snapshot:
        finish = Finish(
            mac=None if _plugins_set_mac(endpoint) else expected.link.mac,
            sysctls=expected.sysctls,
            without_ipv6=disables_ipv6(expected),
            without_defaults=endpoint.record.internal,
            families=known_families(expected),
            addresses=link_local,
            keeps_ipv6=keeps_ipv6(endpoint.network, endpoint.record.attachment.ifname, expected.sysctls),
        )
        try:
            snapshot = await pin.finish(finish)
        except LinkMissing as exc:
            raise Refused(
                f"CNI configuration {endpoint.network.name} made no link {endpoint.record.attachment.ifname} in the "
                f"container, there is only {', '.join(exc.existing)}; it needs a plugin that makes one, such as bridge"
            ) from exc
        _refuse_other_mac(endpoint, expected, snapshot)
        return snapshot

    async def _move_instead(self, record: EndpointRecord, reason: str) -> EndpointRecord:
        """Run the plugins in a staging namespace; libnetwork moves the link from there."""
        refuse_to_move(record, reason)
        log.info("endpoint.moved_instead", endpoint_id=record.id, reason=reason)
        await self.kernel.remove_staging(pin_path(self.run_dir, record.attachment.id))
        expected = snapshot_of(Endpoint(record))
        record = _with_chain(record, staging_path(self.run_dir, record.attachment.id))
        record = _as_moved(replace(record, phase=Phase.JOINING, snapshot=None), reason)
        await self.store.put_endpoint(record)
        record, snapshot = await self.move.run_plugins(record)
        endpoint = Endpoint(record)
        if _plugins_set_mac(endpoint):  # otherwise libnetwork does, when it moves the link
            _refuse_other_mac(endpoint, expected, snapshot)
        if endpoint.reserved is not None and endpoint.result is not None:
            refuse_changed(endpoint.network, endpoint.reserved, endpoint.result, snapshot)
        moved = snapshot_for_move(snapshot, expected)
        moved = without_ipv6(moved) if disables_ipv6(expected) else moved
        return await self.move.attach(with_addresses(replace(record, snapshot=moved.to_json())))

    async def _join_again(self, record: EndpointRecord) -> EndpointRecord:
        """Join an endpoint that has left a running container (moby, `Sandbox.Refresh`): libnetwork moves the link.

        The path of the pin takes the place of the staging namespace's, because the plugins received it at ADD.
        """
        pin, staging = pin_path(self.run_dir, record.attachment.id), Path(record.attachment.netns)
        if is_namespace(staging):  # otherwise an earlier call came to here
            await self.kernel.mount_instead(staging, pin)
            await self.kernel.remove_staging(staging)
        record = replace(record, attachment=replace(record.attachment, netns=str(pin)))
        endpoint = Endpoint(record)
        await self._staged_link(endpoint, endpoint.netns).take_out()
        return await self.move.attach(_as_moved(record, "the endpoint had left its container before"))

    def _pin(self, record: EndpointRecord) -> Pin:
        pin = pin_path(self.run_dir, record.attachment.id)
        return self.kernel.pin(pin, record.attachment.ifname, Endpoint(record).altname)

    def _staged_link(self, endpoint: Endpoint, netns: Path) -> StagedLink:
        return self.kernel.staged_link(
            netns, endpoint.record.attachment.ifname, host_name=endpoint.host_link, altname=endpoint.altname
        )


async def _restore(pin: Pin) -> None:
    """Restore the sandbox's settings. From JOINING on, the teardown does, or a later run of the daemon."""
    try:
        await pin.find()
    except KernelError as exc:  # the first error is what the user must see
        log.warning("sandbox.not_restored", error=str(exc))


def _with_chain(record: EndpointRecord, netns: Path) -> EndpointRecord:
    """Return a record whose plugins run next, in a namespace; from now on, DEL of all of them is pending."""
    return replace(record, attachment=replace(record.attachment, netns=str(netns)), deleted=())


def _as_moved(record: EndpointRecord, reason: str) -> EndpointRecord:
    """Return a record whose mode has become *move*, for a reason in words that follow "because"."""
    return replace(record, attachment=replace(record.attachment, mode=AttachMode.MOVE, mode_reason=reason))


def _plugins_set_mac(endpoint: Endpoint) -> bool:
    return receives_mac(endpoint.chain, endpoint.attachment.args, endpoint.attachment.capability_args)


def _refuse_other_mac(endpoint: Endpoint, expected: Snapshot, snapshot: Snapshot) -> None:
    mac = expected.link.mac
    if mac is not None and snapshot.link.mac != mac:
        advice = "leave out --mac-address" if endpoint.record.requested.mac else "use cni.attach=move"
        raise Refused(
            f"CNI configuration {endpoint.network.name} ignored the requested MAC: the link has MAC "
            f"{snapshot.link.mac}, not {mac}; {advice}"
        )
