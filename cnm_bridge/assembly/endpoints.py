# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Creates and wires the objects of the package `cnm_bridge.driver.endpoints`."""

from dataclasses import dataclass

from cnm_bridge.assembly.attach import AttachRoom
from cnm_bridge.assembly.networks import NetworkRoom
from cnm_bridge.assembly.recovery import RecoveryRoom
from cnm_bridge.assembly.resources import Resources
from cnm_bridge.assembly.teardown import TeardownRoom
from cnm_bridge.core.planning.ports import PortClaims
from cnm_bridge.driver.endpoints.after_join import JoinedEndpoints
from cnm_bridge.driver.endpoints.attempts import Attempts
from cnm_bridge.driver.endpoints.container_files import ContainerFiles
from cnm_bridge.driver.endpoints.first_processes import FirstProcesses
from cnm_bridge.driver.endpoints.port_publisher import PortPublisher
from cnm_bridge.driver.endpoints.service import EndpointService
from cnm_bridge.driver.endpoints.unpublished_ports import Unpublished
from cnm_bridge.system.kernel import HostPorts


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRoom:
    """The room `endpoints`."""

    service: EndpointService
    joined: JoinedEndpoints
    port_publisher: PortPublisher
    unpublished: Unpublished
    container_files: ContainerFiles
    first_processes: FirstProcesses


def make_endpoints(
    resources: Resources,
    *,
    networks: NetworkRoom,
    attach: AttachRoom,
    teardown: TeardownRoom,
    recovery: RecoveryRoom,
) -> EndpointRoom:
    """Return the objects of the room."""
    port_publisher = PortPublisher(resources.store, resources.runtime, HostPorts(), PortClaims())
    unpublished = Unpublished(resources.store, resources.engine_in_calls, resources.kernel)
    attempts = Attempts(resources.store, teardown.queue, attach.locks)
    container_files = ContainerFiles(resources.store, resources.kernel, resources.release)
    first_processes = FirstProcesses(resources.store, resources.kernel, attach.owners, attach.locks)
    joined = JoinedEndpoints(
        store=resources.store,
        port_publisher=port_publisher,
        unpublished=unpublished,
        sandbox_sync=attach.sandbox_sync,
        files=container_files,
        teardowns=teardown.queue,
        dead=teardown.dead,
        locks=attach.locks,
        first_processes=first_processes,
    )
    recovery.rebuild_endpoint.when_rebuilt(joined.missed_ports.note_rebuilt)
    return EndpointRoom(
        service=EndpointService(
            store=resources.store,
            networks=networks.service,
            attempts=attempts,
            attachers=attach.attachers,
            owners=teardown.owners,
            teardowns=teardown.queue,
            dead=teardown.dead,
            rebuild_endpoint=recovery.rebuild_endpoint,
            joined=joined,
            unpublished=unpublished,
            locks=attach.locks,
            kernel=resources.kernel,
            run_dir=resources.settings.run_dir,
            boot_id=resources.boot_id,
        ),
        joined=joined,
        port_publisher=port_publisher,
        unpublished=unpublished,
        container_files=container_files,
        first_processes=first_processes,
    )
