# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of `cnm_bridge.server`: the calls of Docker, and the requests of operators."""

from dataclasses import dataclass, replace

from cnm_bridge.assembly.endpoints import EndpointRoom
from cnm_bridge.assembly.ipam import IpamRoom
from cnm_bridge.assembly.networks import NetworkRoom
from cnm_bridge.assembly.recovery import RecoveryRoom
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.assembly.teardown import TeardownRoom
from cnm_bridge.driver.networks.readable_ids import ReadableIds
from cnm_bridge.server.admin.actions import Actions
from cnm_bridge.server.admin.checks import EndpointChecks
from cnm_bridge.server.admin.endpoints import EndpointDocuments
from cnm_bridge.server.admin.http import Request
from cnm_bridge.server.admin.ipam import IpamDocuments
from cnm_bridge.server.admin.metrics import Metrics
from cnm_bridge.server.admin.requests import admin_requests
from cnm_bridge.server.admin.status import Status
from cnm_bridge.server.api import CallsUnderWay, Method, ipam_driver, network_driver
from cnm_bridge.server.serving import PendingConnections
from cnm_bridge.system.log_writer import LogWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminRoom:
    """The room `admin`.

    Attributes:
        requests: The requests that the daemon answers at the admin socket.
        metrics: The one of them that it answers at the address for metrics, too.
    """

    requests: tuple[Request, ...]
    metrics: Request


def make_admin(
    resources: Resources,
    *,
    networks: NetworkRoom,
    teardown: TeardownRoom,
    recovery: RecoveryRoom,
    endpoints: EndpointRoom,
    ipam: IpamRoom,
    log_output: LogWriter | None,
) -> AdminRoom:
    """Return the objects of the room."""
    addresses = IpamDocuments(
        store=resources.store,
        releases=ipam.releases,
        unclaimed=ipam.unclaimed,
        service=ipam.service,
        kernel=resources.kernel,
    )
    status = Status(
        store=resources.store,
        teardowns=teardown.queue,
        reconcile=recovery.reconciler,
        unpublished=endpoints.unpublished,
        dhcp=recovery.lease_keeper,
        watch=networks.watch,
        ipam=addresses,
        running_dir=resources.running_dir,
        state_dir=resources.settings.state_dir,
    )
    metrics = Metrics(
        store=resources.store,
        teardowns=teardown.queue,
        reconcile=recovery.reconciler,
        unpublished=endpoints.unpublished,
        releases=ipam.releases,
        directories=networks.directories,
        journal=resources.journal,
        state_dir=resources.settings.state_dir,
        log_output=log_output,
    )
    documents = EndpointDocuments(
        store=resources.store,
        kernel=resources.kernel,
        unpublished=endpoints.unpublished,
        teardowns=teardown.queue,
        journal=resources.journal,
        watch=networks.watch,
    )
    actions = Actions(
        teardowns=teardown.queue,
        reconciler=recovery.reconciler,
        ipam=addresses,
    )
    requests = admin_requests(
        store=resources.store,
        status=status,
        endpoints=documents,
        checks=EndpointChecks(resources.store, resources.runtime, resources.kernel),
        actions=actions,
        ipam=addresses,
        journal=resources.journal,
    )
    return AdminRoom(requests=(*requests, metrics.request), metrics=metrics.request)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiRoom:
    """The room `api`.

    Attributes:
        methods: The calls that the daemon answers.
    """

    methods: tuple[Method, ...]
    calls: CallsUnderWay
    connections: PendingConnections


def make_api(
    resources: Resources,
    *,
    calls: CallsUnderWay,
    networks: NetworkRoom,
    endpoints: EndpointRoom,
    ipam: IpamRoom,
) -> ApiRoom:
    """Return the objects of the room."""
    methods = (
        *network_driver(
            networks.service,
            endpoints.service,
            endpoints.joined,
            resources.kernel,
            resources.release,
            scope=resources.settings.scope,
        ),
        *ipam_driver(ipam.service, resources.kernel),
    )
    readable = ReadableIds(resources.store, resources.engine_in_calls)
    return ApiRoom(
        methods=tuple(replace(method, readable=readable) for method in methods),
        calls=calls,
        connections=PendingConnections(on_hidden=resources.kernel.distrust_processes),
    )
