# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates all objects of the daemon, package by package, each after those it depends on; nothing is started yet.

This module shows the dependencies between packages; the module of a package shows those between its objects.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from cni_bridge_state.store import Store
from cnm_bridge.assembly.attach import AttachRoom, make_attach
from cnm_bridge.assembly.endpoints import EndpointRoom, make_endpoints
from cnm_bridge.assembly.ipam import IpamRoom, make_ipam
from cnm_bridge.assembly.networks import NetworkRoom, make_networks
from cnm_bridge.assembly.recovery import RecoveryRoom, make_recovery
from cnm_bridge.assembly.resources import Resources, make_resources
from cnm_bridge.assembly.server import AdminRoom, ApiRoom, make_admin, make_api
from cnm_bridge.assembly.teardown import TeardownRoom, make_teardown
from cnm_bridge.core.settings import Settings
from cnm_bridge.driver.attach.sandbox_owner import SandboxOwners
from cnm_bridge.server.admin.http import answering_admin
from cnm_bridge.server.admin.requests import settings_request
from cnm_bridge.server.api import CallsUnderWay
from cnm_bridge.server.server import answering
from cnm_bridge.system.log_writer import LogWriter
from cnm_bridge.system.process.network_sockets import Listener


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """The resources, the rooms, and the calls that the daemon answers."""

    resources: Resources
    networks: NetworkRoom
    attach: AttachRoom
    teardown: TeardownRoom
    recovery: RecoveryRoom
    endpoints: EndpointRoom
    ipam: IpamRoom
    api: ApiRoom
    admin: AdminRoom

    def answering(self, listeners: Sequence[Listener], drain_timeout_s: float) -> AbstractAsyncContextManager[None]:
        """Answer the calls on listening sockets while the block runs; see `cnm_bridge.server.server`."""
        return answering(
            listeners,
            self.api.methods,
            calls=self.api.calls,
            connections=self.api.connections,
            teardowns=self.teardown.queue,
            journal=self.resources.journal,
            drain_timeout_s=drain_timeout_s,
        )

    def answering_admin(
        self, listener: Listener | None, settings: Callable[[], Settings]
    ) -> AbstractAsyncContextManager[Callable[[Listener], None]]:
        """Answer the operator's requests on the admin socket, if there is one, while the block runs."""
        return answering_admin(listener, (*self.admin.requests, settings_request(settings)))

    def answering_scrapes(self, listener: Listener | None) -> AbstractAsyncContextManager[object]:
        """Answer `GET /metrics` on a TCP socket while the block runs; nothing without one."""
        return answering_admin(listener, (self.admin.metrics,), is_brief=True)


def assemble(
    settings: Settings, store: Store, *, plugin_descriptors: int | None = None, log_output: LogWriter | None = None
) -> Daemon:
    """Make all objects and connect them.

    Args:
        settings: The settings.
        store: The records.
        plugin_descriptors: The soft limit of open descriptors for plugins; None for the daemon's own.
        log_output: What writes the log; its dropped lines are a metric.
    """
    calls = CallsUnderWay()
    resources = make_resources(settings, store, plugin_descriptors)
    networks = make_networks(resources)
    owners = SandboxOwners(resources.kernel, resources.engine_at_join, resources.release)
    attach = make_attach(resources, owners)
    teardown = make_teardown(resources, attach=attach, quiet_s=calls.quiet_s)
    ipam = make_ipam(resources, networks=networks, teardown=teardown)
    recovery = make_recovery(resources, networks=networks, attach=attach, teardown=teardown, ipam=ipam)
    endpoints = make_endpoints(resources, networks=networks, attach=attach, teardown=teardown, recovery=recovery)
    api = make_api(resources, calls=calls, networks=networks, endpoints=endpoints, ipam=ipam)
    admin = make_admin(
        resources,
        networks=networks,
        teardown=teardown,
        recovery=recovery,
        endpoints=endpoints,
        ipam=ipam,
        log_output=log_output,
    )
    forgetters = (
        teardown.in_use.forget,
        attach.sandbox_sync.forget,
        recovery.rebuild_endpoint.forget,
        endpoints.unpublished.forget,
        endpoints.container_files.forget,
        endpoints.first_processes.forget,
    )
    for forget in forgetters:
        store.when_removed(forget)
    return Daemon(
        resources=resources,
        networks=networks,
        attach=attach,
        teardown=teardown,
        recovery=recovery,
        endpoints=endpoints,
        ipam=ipam,
        api=api,
        admin=admin,
    )
