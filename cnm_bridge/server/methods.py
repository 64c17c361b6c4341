# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tables of all NetworkDriver and IpamDriver calls.

Source: moby `daemon/libnetwork/drivers/remote/driver.go`, `ipams/remote/remote.go`, their `api/api.go`; `network.go`,
ipamAllocateVersion.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

import structlog

from cni_bridge_spec import JsonObject, find_object
from cni_bridge_state import ProcessRecord
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.ipam.wire import (
    parse_release_address,
    parse_release_pool,
    parse_request_address,
    parse_request_pool,
    render_address_reply,
    render_pool_reply,
)
from cnm_bridge.core.settings import Scope
from cnm_bridge.core.wire import (
    OWN_SPACES,
    parse_create_endpoint,
    parse_create_network,
    parse_endpoint_reference,
    parse_external_connectivity,
    parse_join,
    parse_network_id,
    render_interface,
    render_joined,
)
from cnm_bridge.driver.endpoints.after_join import JoinedEndpoints
from cnm_bridge.driver.endpoints.service import EndpointService
from cnm_bridge.driver.ipam.service import IpamService
from cnm_bridge.driver.networks.service import NetworkService
from cnm_bridge.server.rpc import Answer, Method
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.known_version import KnownVersion

log = structlog.get_logger()

_IMPLEMENTS: Final[JsonObject] = {"Implements": ["NetworkDriver", "IpamDriver"]}

_CAPABILITIES: Final[JsonObject] = {"ConnectivityScope": "global", "GwAllocChecker": True}
"""Tasks of a swarm's network find each other by name on all nodes. With the scope local each node has its own networks
and addresses; with the scope global the manager gives all addresses.

libnetwork announces names between nodes only for drivers whose connectivity is global (moby `libnetwork/agent.go`,
clusterAgent), as its own `macvlan` and `ipvlan` say of theirs. Outside a swarm it does not look at it.
"""

# Where Docker's own IPAM chooses addresses, it must not give a container the one of the plugins' gateway.
_GATEWAY_NEEDED: Final[JsonObject] = {"SkipIPv4": False, "SkipIPv6": False}

_FORGOTTEN: Final = (
    "may forget the container's networks after this error, and start it without any the next time (moby #51758); "
    "run docker network connect NETWORK CONTAINER before that"
)

_NOTHING_TO_SHOW: Final[JsonObject] = {"Value": {}}

_IPAM_ERROR_KEY: Final = "Error"

_IPAM_CAPABILITIES: Final[JsonObject] = {"RequiresMACAddress": False, "RequiresRequestReplay": False}
"""A MAC would be chosen for the links of all drivers, and Docker's ipvlan refuses one (docs/decisions/)."""

_ADDRESS_SPACES: Final[JsonObject] = dict(
    zip(("LocalDefaultAddressSpace", "GlobalDefaultAddressSpace"), OWN_SPACES, strict=True)
)

Request = TypeVar("Request")
Reply = TypeVar("Reply")


def network_driver(
    networks: NetworkService,
    endpoints: EndpointService,
    joined: JoinedEndpoints,
    kernel: Kernel,
    version: KnownVersion,
    *,
    scope: Scope,
) -> tuple[Method, ...]:
    """Return all NetworkDriver calls, implemented by the given objects."""
    answered = partial(_with_caller, kernel)

    async def oper_info(body: JsonObject, _: int | None) -> JsonObject:
        await joined.oper_info(parse_endpoint_reference(body))
        return _NOTHING_TO_SHOW

    def describe_failed_start() -> str:
        forgets = version.current is not None and version.current.forgets_networks
        return f"Docker Engine {version.current} {_FORGOTTEN}" if forgets else ""

    # fmt: off
    return (
        Method("Plugin.Activate", None, _IMPLEMENTS),
        Method("NetworkDriver.GetCapabilities", None, {"Scope": str(scope), **_CAPABILITIES}),
        Method("NetworkDriver.GwAllocCheck", "cnm/GwAllocCheck", _GATEWAY_NEEDED),
        # Only a swarm manager calls these two, and only for drivers of global scope. It calls FreeNetwork before Leave
        # and DeleteEndpoint, so nothing is freed then.
        Method("NetworkDriver.AllocateNetwork", "cnm/AllocateNetwork", _allocate),
        Method("NetworkDriver.FreeNetwork", "cnm/NetworkReference", {}),
        Method("NetworkDriver.CreateNetwork", "cnm/CreateNetwork",
               answered(parse_create_network, networks.create, lambda _: {})),
        Method("NetworkDriver.DeleteNetwork", "cnm/NetworkReference",
               _without_result(parse_network_id, networks.forget)),
        Method("NetworkDriver.CreateEndpoint", "cnm/CreateEndpoint",
               answered(parse_create_endpoint, endpoints.create, render_interface)),
        Method("NetworkDriver.DeleteEndpoint", "cnm/EndpointReference",
               _without_result(parse_endpoint_reference, endpoints.delete)),
        # Called several times per container start. Before 28.1 an error is fatal; the result is never shown.
        Method("NetworkDriver.EndpointOperInfo", "cnm/EndpointReference", oper_info),
        Method("NetworkDriver.Join", "cnm/Join",
               answered(parse_join, endpoints.join, render_joined), describe_failed_start),
        Method("NetworkDriver.Leave", "cnm/EndpointReference",
               _without_result(parse_endpoint_reference, endpoints.leave)),
        Method("NetworkDriver.ProgramExternalConnectivity", "cnm/ProgramExternalConnectivity",
               _without_result(parse_external_connectivity, joined.program_external_connectivity),
               describe_failed_start),
        Method("NetworkDriver.RevokeExternalConnectivity", "cnm/EndpointReference",
               _without_result(parse_endpoint_reference, joined.revoke_external_connectivity)),
        # Sent when swarm nodes join and leave; this driver's networks are local.
        Method("NetworkDriver.DiscoverNew", "cnm/Discover", {}),
        Method("NetworkDriver.DiscoverDelete", "cnm/Discover", {}),
    )
    # fmt: on


def ipam_driver(ipam: IpamService) -> tuple[Method, ...]:
    """Return all IpamDriver calls, implemented by the given objects."""
    method = partial(Method, error_key=_IPAM_ERROR_KEY)
    # fmt: off
    return (
        method("IpamDriver.GetCapabilities", None, _IPAM_CAPABILITIES),
        method("IpamDriver.GetDefaultAddressSpaces", None, _ADDRESS_SPACES),
        method("IpamDriver.RequestPool", "ipam/RequestPool",
               _answered(parse_request_pool, ipam.request_pool, render_pool_reply)),
        method("IpamDriver.ReleasePool", "ipam/ReleasePool", _without_result(parse_release_pool, ipam.release_pool)),
        method("IpamDriver.RequestAddress", "ipam/RequestAddress",
               _answered(parse_request_address, ipam.request_address, render_address_reply)),
        method("IpamDriver.ReleaseAddress", "ipam/ReleaseAddress",
               _without_result(parse_release_address, ipam.release_address)),
    )
    # fmt: on


async def _allocate(body: JsonObject, _: int | None) -> JsonObject:
    """Return the options of a network as they are: the nodes receive exactly those of this answer with CreateNetwork.

    It is called again after each restart of the manager and each change of the leader. Nothing is refused here, because
    Docker does not show the error.
    """
    return {"Options": find_object(body, "Options") or {}}


def _with_caller(
    kernel: Kernel,
    parse: Callable[[JsonObject], Request],
    call: Callable[[Request, ProcessRecord | None], Awaitable[Reply]],
    render: Callable[[Reply], JsonObject],
) -> Answer:
    """Return the answer of a call that needs to know who makes it."""

    async def carry_out(request: Request, caller_pid: int | None) -> JsonObject:
        return render(await call(request, _find_caller(kernel, caller_pid)))

    return lambda body, caller_pid: carry_out(parse(body), caller_pid)


def _answered(
    parse: Callable[[JsonObject], Request],
    call: Callable[[Request], Awaitable[Reply]],
    render: Callable[[Reply], JsonObject],
) -> Answer:
    """Return the answer of a call, whose caller does not matter."""

    async def carry_out(request: Request) -> JsonObject:
        return render(await call(request))

    return lambda body, _: carry_out(parse(body))


def _without_result(parse: Callable[[JsonObject], Request], call: Callable[[Request], Awaitable[None]]) -> Answer:
    """Return the answer of a call whose reply is empty."""
    return _answered(parse, call, lambda _: {})


def _find_caller(kernel: Kernel, pid: int | None) -> ProcessRecord | None:
    """Return the process that makes a call, usually dockerd; None if it is not visible or its connection was lost.

    Its start time distinguishes it from later processes with the same ID.
    """
    if not pid:
        return None
    try:
        started = kernel.find_start(pid)
    except KernelError as exc:
        log.warning("caller.unknown", error=str(exc))
        return None
    if started is None:
        log.warning("caller.unknown", error=f"there is no process {pid}")
        return None
    return ProcessRecord(pid=pid, started=started)
