# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads all facts."""

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from cni_bridge_spec import JsonObject, find_str, get_objects, get_str, get_strings
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import BadOption, EngineRefused, EngineUnavailable, KernelError
from cnm_bridge.core.lists.guard import parse_egress
from cnm_bridge.core.options.cni_options import list_name
from cnm_bridge.core.settings import Scope, Settings
from cnm_bridge.operator.doctor.facts import (
    DockerNetwork,
    EngineFacts,
    Facts,
    InstallationFacts,
    JoinedEndpoint,
    UnjoinedContainer,
)
from cnm_bridge.operator.doctor.firewall import gather_firewall
from cnm_bridge.operator.doctor.guarded import gather_guard
from cnm_bridge.operator.doctor.installation import (
    find_daemon,
    gather_paths,
    gather_space,
    gather_units,
)
from cnm_bridge.operator.doctor.networks import find_sections, gather_networks
from cnm_bridge.operator.doctor.platform import read_sysctls
from cnm_bridge.operator.host import HostLink, HostRoute, read_links, read_routes
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

_ENGINE_LIMIT_S: Final = 10.0
_SHORT: Final = 12
_IMPOSSIBLE_NETWORK: Final = "cni-bridge-doctor"
_UNKNOWN_DRIVER: Final = "could not resolve driver"


async def gather(settings: Settings, mistakes: Sequence[str], held: JsonObject | None, *, quick: bool) -> Facts:
    """Read all facts about the host; what cannot be read is left out.

    Args:
        settings: The settings of the daemon, or those that it would have.
        mistakes: What is wrong in its configuration file.
        held: The endpoints of the running daemon, and the addresses that Docker has requested, as `spec/admin` has
            them: `endpoints.json` and `addresses.json`; None if no daemon answers.
        quick: Whether no plugin may be executed.
    """
    directories = ConfigurationDirectories(settings.cni_conf_dirs)
    index = directories.index()
    lists = tuple(index.find(name) for name in index.names)
    engine, containers, docker_networks = await _gather_engine(settings, index.names, quick=quick)
    section_lists, broken_sections = find_sections(directories)
    kernel = Kernel(reply_limit_s=settings.netlink_timeout_s)
    used = None if held is None else await _find_used(kernel, held)
    links: Mapping[str, HostLink] = {}
    routes: Sequence[HostRoute] = ()
    with suppress(KernelError):
        links, routes = await read_links(kernel), await read_routes(kernel)
    return Facts(
        kernel=os.uname().release,
        sysctls=read_sysctls(),
        firewall=await gather_firewall(),
        engine=engine,
        networks=await gather_networks(lists, settings, used=used, quick=quick),
        sections=await gather_networks(section_lists, settings, used=used, quick=quick, are_sections=True),
        routes=routes,
        links=links,
        endpoints=() if held is None else tuple(_joined(held, containers)),
        unjoined=() if held is None else tuple(find_unjoined(held, containers, docker_networks)),
        guard=await gather_guard(lists),
        conf_dirs=settings.cni_conf_dirs,
        bin_dirs=settings.cni_bin_dirs,
        installation=InstallationFacts(
            is_root=os.geteuid() == 0,
            units=await gather_units(),
            paths=gather_paths(settings),
            free_bytes=gather_space(settings),
            daemon_pid=find_daemon(settings.state_dir),
            mistakes=mistakes,
            broken_files=(*map(str, index.problems), *broken_sections),
            shadowed_files=tuple(
                f"{one.file} is not used: {one.by} has the name {one.name} too" for one in index.shadowed
            ),
        ),
    )


async def _gather_engine(
    settings: Settings, lists: Collection[str], *, quick: bool
) -> tuple[EngineFacts, Sequence[EngineContainer], Sequence[EngineNetwork]]:
    engine = Engine(settings.docker_host, _ENGINE_LIMIT_S)
    try:
        found = await engine.describe()
        containers = await engine.containers()  # before the networks: see `find_unjoined`
        ids = await engine.network_ids(settings.driver_name)
        found_networks = [network for one in ids if (network := await engine.find_network(one)) is not None]
        is_plugin = ":" in settings.driver_name and settings.driver_name in found.network_drivers
        # a manager would pass the request for a network of scope global on to the swarm
        is_asked = is_plugin and settings.scope is Scope.LOCAL and not quick
        is_found = not is_asked or await finds_driver(engine, settings.driver_name)
    except EngineUnavailable as exc:
        return EngineFacts(address=settings.docker_host, silence=str(exc)), (), ()
    facts = EngineFacts(
        address=settings.docker_host,
        version=found.version,
        is_rootless=found.is_rootless,
        networks=tuple(
            DockerNetwork(
                name=network.name,
                configuration=list_name(network, lists),
                pools=network.pools,
                containers=tuple(sorted(endpoint.name for endpoint in network.endpoints.values() if endpoint.name)),
                is_guarded=_is_guarded(network.options),
            )
            for network in found_networks
        ),
        namesake=next((one for one in found.network_drivers if one == f"{settings.driver_name}:latest"), ""),
        unused_plugin="" if is_found else settings.driver_name,
    )
    return facts, containers, found_networks


def _is_guarded(options: Mapping[str, str]) -> bool:
    """Return whether a network's options guard it; not if they are invalid, because then no container starts on it."""
    with suppress(BadOption):
        return parse_egress(options).guards
    return False


def _joined(held: JsonObject, containers: Iterable[EngineContainer]) -> Iterator[JoinedEndpoint]:
    """Yield the endpoints in running containers."""
    names = {one: container.name for container in containers for one in container.endpoint_ids}
    for endpoint in get_objects(held, "endpoints"):
        if get_str(endpoint, "phase") == "joined":
            yield JoinedEndpoint(
                container=names.get(get_str(endpoint, "id")) or get_str(endpoint, "id")[:_SHORT],
                configuration=find_str(endpoint, "configuration") or "",
                ways_out=get_strings(endpoint, "waysOut"),
            )


def find_unjoined(
    held: JsonObject, containers: Iterable[EngineContainer], networks: Iterable[EngineNetwork]
) -> Iterator[UnjoinedContainer]:
    """Yield running containers for which Docker lists networks that they are not on.

    `networks` were described after `containers` were listed, and these after the daemon's endpoints: so a container
    that starts or stops meanwhile has its endpoint in one of them.
    """
    network_of = {get_str(one, "id"): get_str(one, "networkId") for one in get_objects(held, "endpoints")}
    described = tuple(networks)
    for container in containers:
        on = {network_of.get(one) for one in container.endpoint_ids}
        listed = {*container.networks, *container.networks.values()}  # without an ID if not even an endpoint was made
        found = [one for one in described if not listed.isdisjoint((one.id, one.name)) and one.id not in on]
        names = tuple(one.name for one in found if not one.has_container(container.id))
        if names and container.is_running:
            yield UnjoinedContainer(container=container.name, networks=names)


async def _find_used(kernel: Kernel, held: JsonObject) -> frozenset[str] | None:
    """Return what a reservation is in use by: CNI container IDs, of Docker's requested addresses too, and addresses.

    None if the addresses of containers cannot be read.
    """
    known = (*get_objects(held, "endpoints"), *get_objects(held, "addresses"))
    ids = frozenset(find_str(one, "containerId") or get_str(one, "id") for one in known)
    try:
        return ids | (await kernel.look_into_sandboxes()).addresses
    except KernelError:
        return None


async def finds_driver(engine: Engine, name: str) -> bool:
    """Return whether the engine finds a network driver of scope local. An enabled managed plugin may have none.

    Requests a network that no engine makes: the IPAM driver `null` refuses a subnet, after the engine has looked
    for the network's driver and before it calls it (moby, `Controller.NewNetwork`).
    """
    ipam = {"Driver": "null", "Config": [{"Subnet": "192.0.2.0/24"}]}
    try:
        await engine.create_network({"Name": _IMPOSSIBLE_NETWORK, "Driver": name, "IPAM": ipam})
    except EngineRefused as exc:
        return _UNKNOWN_DRIVER not in str(exc)
    with suppress(EngineUnavailable):
        await engine.remove_network(_IMPOSSIBLE_NETWORK)
    return True
