# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The attacher of mode *move*: plugins run in a staging namespace, and libnetwork moves the link into the sandbox.

Works on every engine, also if the sandbox does not exist at Join (before Engine 28). What cannot be moved, such as a
second link or packet filter rules in the namespace, is refused.
See docs/decisions/move-links-from-a-staging-namespace.md.

`bridge` and `ptp` leave duplicate address detection of the gateway's IPv6 address to the kernel. Until it ends, one to
two seconds later, the host does not answer neighbour solicitations: neither for the first container on a new bridge,
nor for any container of `ptp`. Docker's own bridge has no detection (moby `bridge/bridge_linux.go`, IFA_F_NODAD), and
needs none: nothing else can have an address on a link that was made a moment ago.
"""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final

import structlog

from cni_bridge_spec import find_object
from cni_bridge_state import EndpointRecord, Phase, WrongPhase
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList, PluginFailed, Result, Runtime
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import KernelError, LinkMissing, NotCarriable, Refused
from cnm_bridge.core.link.endpoint_replies import choose_interface, describe_join, with_addresses
from cnm_bridge.core.link.plan_sandbox import without_ipv6
from cnm_bridge.core.link_state import Snapshot
from cnm_bridge.core.lists.plugins import bridge_of, choose_observation, describe_uncarriable, find_missing_links
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.planning.ports import idle_without_ports
from cnm_bridge.core.planning.records import refuse_ignored, with_moved_mac, with_sysctls
from cnm_bridge.core.wire import ChosenInterface, Joined
from cnm_bridge.driver.attach.attacher import DeleteProgress
from cnm_bridge.driver.attach.detachers import MoveDetacher
from cnm_bridge.driver.attach.place_finder import PlaceFinder
from cnm_bridge.driver.attach.sandbox_sync import SandboxSync
from cnm_bridge.system.kernel import Kernel

log = structlog.get_logger()

_IPV6: Final = 6


async def run_add(kernel: Kernel, network: NetworkConfigurationList, add: Awaitable[Result]) -> Result:
    """Await the ADD of a list; then the links that it has made on the host answer for their IPv6 addresses.

    A bridge that was there before, such as one of the operator's with a LAN behind it, stays as it is. A plugin's error
    gets a note of each link of its list that the host does not have.
    """
    main = network.plugins[0]
    is_new = main.type == "bridge" and not kernel.has_host_link(bridge_of(main.document))
    async with _naming_missing_links(kernel, network):
        result = await add
    if all(ip.address.version != _IPV6 for ip in result.ips):
        return result
    made = [link.name for link in result.interfaces if not link.sandbox] if is_new or main.type == "ptp" else []
    try:
        if made:
            await kernel.end_detection(made)
    except KernelError as exc:  # the gateway answers all the same, when the kernel's detection ends
        log.info("gateway.detection_goes_on", links=made, error=str(exc))
    return result


@asynccontextmanager
async def _naming_missing_links(kernel: Kernel, network: NetworkConfigurationList) -> AsyncIterator[None]:
    try:
        yield
    except PluginFailed as exc:
        with suppress(KernelError):
            links = await kernel.host_links()
            existing = frozenset(name for link in links for name in (link.state.name, *link.altnames))
            for name, what in find_missing_links(network, existing):
                exc.add_note(f"the host has no link {name}, the {what}; `ip link` shows all")
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveAttacher:
    """Attaches via a staging namespace (`state.AttachMode.MOVE`)."""

    store: Store
    runtime: Runtime
    kernel: Kernel
    sandbox_sync: SandboxSync
    detacher: MoveDetacher
    places: PlaceFinder

    async def prepare(self, record: EndpointRecord, plan: Plan) -> EndpointRecord:
        """Run the plugins, and store the link that they have made."""
        record, snapshot = await self.run_plugins(record)
        refuse_ignored(plan, snapshot)
        snapshot = with_moved_mac(plan, with_sysctls(plan, snapshot))
        if plan.without_ipv6:
            snapshot = without_ipv6(snapshot)
        record = with_addresses(replace(record, phase=Phase.READY, snapshot=snapshot.to_json()))
        await self.store.put_endpoint(record)
        return record

    async def run_plugins(self, record: EndpointRecord) -> tuple[EndpointRecord, Snapshot]:
        """Run the plugins in the staging namespace, and move the link to the host namespace.

        Each plugin's result is stored before the next effect, because DEL needs it: `firewall` does not remove its
        rules without the result, and other plugins find theirs by the link's addresses, which the move removes. Returns
        the record as it was stored last, and the snapshot of the link, which is not in it yet. Errors as `prepare`.
        """
        endpoint = Endpoint(record)
        configuration, ifname = endpoint.chain, record.attachment.ifname
        reserved = int(record.attachment.has_reservation)

        async def save_result(result: Result, added_plugins: int) -> None:
            nonlocal record
            record = with_addresses(replace(record, added_plugins=reserved + added_plugins, result=result.document))
            await self.store.put_endpoint(record)

        observation = choose_observation(configuration, ifname)
        baseline = await self.kernel.create_staging(endpoint.netns, ifname, observation)
        skipped = idle_without_ports(configuration)
        add = self.runtime.add(configuration, endpoint.attachment, on_result=save_result, skipped=skipped)
        await run_add(self.kernel, configuration, add)
        warn_of_dns(record)
        try:
            snapshot = await self.kernel.staged_link(
                endpoint.netns, ifname, host_name=endpoint.host_link, altname=endpoint.altname
            ).take_out(baseline)
        except NotCarriable as exc:
            raise Refused(describe_uncarriable(configuration, exc)) from exc
        except LinkMissing as exc:
            raise Refused(
                f"CNI configuration {configuration.name} made no link for the container, there is only "
                f"{', '.join(exc.existing)}; it needs a plugin that makes one, such as bridge, ptp or macvlan"
            ) from exc
        return record, snapshot

    def create_reply(self, record: EndpointRecord) -> ChosenInterface:
        """Return the addresses and the MAC of the link."""
        return choose_interface(snapshot_of(Endpoint(record)), record.requested)

    async def attach(self, record: EndpointRecord) -> EndpointRecord:
        """Store that the endpoint is joined. libnetwork then moves the link, and the sandbox is synced afterwards."""
        snapshot = snapshot_of(Endpoint(record))
        record = replace(record, phase=Phase.JOINED, ifname_prefix=self.places.find_prefix(record))
        allowed = await self.sandbox_sync.as_allowed(record.sandbox, snapshot)
        if allowed is not snapshot:
            record = replace(record, snapshot=allowed.to_json())
        endpoint = Endpoint(record)
        await self.store.put_endpoint(record)
        self.sandbox_sync.join(endpoint)
        return record

    def join_reply(self, record: EndpointRecord) -> Joined:
        """Return the link, and the gateways and routes that libnetwork can program."""
        endpoint = Endpoint(record)
        return describe_join(
            snapshot_of(endpoint), endpoint.host_link, prefix=record.ifname_prefix, internal=record.internal
        )

    def joined_record(self, record: EndpointRecord) -> EndpointRecord:
        """Return the record in JOINED."""
        return replace(record, phase=Phase.JOINED)

    async def leave(self, record: EndpointRecord) -> EndpointRecord:
        """Remove the policy rules from the sandbox; libnetwork moves the link back afterwards."""
        await self.sandbox_sync.withdraw(record)
        return replace(record, phase=Phase.READY)

    async def detach(self, record: EndpointRecord, progress: DeleteProgress) -> str:
        """Bring the link back into the staging namespace, run DEL there, and remove the namespace."""
        return await self.detacher.detach(record, progress)

    def prepare_again(self, record: EndpointRecord) -> None:
        """Do nothing: Join runs no plugin."""


def warn_of_dns(record: EndpointRecord) -> None:
    """Log name servers of a result, which no driver can give to Docker."""
    dns = find_object(record.result or {}, "dns") or {}
    if any(dns.values()):
        log.warning("endpoint.dns_unused", configuration=record.attachment.network, dns=dns)


def snapshot_of(endpoint: Endpoint) -> Snapshot:
    """Return the snapshot of an endpoint; raise `WrongPhase` if it has none yet."""
    if endpoint.snapshot is None:
        raise WrongPhase(endpoint.id, endpoint.record.phase, Phase.JOINED)
    return endpoint.snapshot
