# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes a Docker network, and its list if no other network uses it."""

import asyncio
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final

from cni_bridge_spec import JsonError, as_object, get_strings
from cni_invoker import ConfigurationDirectories, ConfigurationIndex, NetworkConfigurationList
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import Refused, UnknownName
from cnm_bridge.core.lists.guard import is_guarded
from cnm_bridge.core.lists.plugins import bridges
from cnm_bridge.core.options.cni_options import CONFIGURATION
from cnm_bridge.core.saved_rules import parse_saved_rules
from cnm_bridge.core.settings import Settings
from cnm_bridge.driver.recovery.artifacts import list_reservations
from cnm_bridge.operator.egress import GUARD_RECORDS, EgressFailed, ask_egress
from cnm_bridge.operator.host import read_lines
from cnm_bridge.operator.networks.collisions import PREDEFINED
from cnm_bridge.operator.networks.creation import ENGINE_LIMIT_S
from cnm_bridge.operator.networks.list_document import bridge_name
from cnm_bridge.system.commands import run_command
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel

_EMPTY_LIMIT_S: Final = 10.0
"""For the links of containers that were removed just before: their teardown runs in the background."""
_LOOK_EVERY_S: Final = 0.1
_ISOLATION: Final = ("CNI-ISOLATION-STAGE-1", "CNI-ISOLATION-STAGE-2")
"""The chains of the plugin `firewall` with an `ingressPolicy`; its DEL leaves the rules of a bridge, for other
containers (plugins 1.1.1 and 1.9.1, `ingresspolicy.go`)."""
_RULE_LIMIT_S: Final = 10.0


async def remove_network(settings: Settings, name: str, *, with_list: bool) -> tuple[str, ...]:
    """Remove a Docker network, and with `with_list` its list and the bridge that is named after it.

    Returns:
        What was removed, and what was kept and why.

    Raises:
        Refused: The network or its list is in use, or is another driver's or the daemon's own; nothing was changed.
        EngineUnavailable: The engine does not answer, or refuses.
        KernelError: The bridge cannot be removed; the rest was.
        OSError: The list cannot be removed; the Docker network was.
    """
    engine = Engine(settings.docker_host, ENGINE_LIMIT_S)
    found = await engine.find_network_named(name)
    if found is None and not with_list:
        raise UnknownName(f"Docker has no network {name}; `cni-bridge ls --networks` shows those of this driver")
    if found is not None:
        _refuse_used(found, settings)
    index = ConfigurationDirectories(settings.cni_conf_dirs).index()
    network = await _find_list(engine, settings, index, found, name) if with_list else None
    done = []
    if found is not None:
        await engine.remove_network(found.id)
        done.append(f"Docker network {name} was removed")
    if network is not None and network.source is not None:
        network.source.unlink()
        done.append(f"{network.source} was removed")
        others = [index.find(other) for other in index.names if other != network.name]
        done += await _remove_bridge(settings, network, others)
        done += await _remove_isolation(network, others)
        done += await asyncio.to_thread(_remove_guards, network)
    return tuple(done)


def _refuse_used(found: EngineNetwork, settings: Settings) -> None:
    if found.driver != settings.driver_name:
        remedy = "" if found.name in PREDEFINED else f"; docker network rm {found.name} removes it"
        raise Refused(
            f"the Docker network {found.name} is of driver {found.driver}, not of {settings.driver_name}{remedy}"
        )
    containers = sorted(endpoint.name for endpoint in found.endpoints.values())
    if containers:
        raise Refused(
            f"containers are on the Docker network {found.name}: {', '.join(containers)}; remove them, or disconnect "
            f"each: docker network disconnect {found.name} {containers[0]}"
        )


async def _find_list(
    engine: Engine, settings: Settings, index: ConfigurationIndex, found: EngineNetwork | None, name: str
) -> NetworkConfigurationList:
    """Return the list of a network, or that of a name if there is no such network.

    Raises:
        Refused: It is used elsewhere, or does not exist.
    """
    configuration = name if found is None else found.options.get(CONFIGURATION, name)
    try:
        network = index.find(configuration)
    except ConfigurationNotFound as exc:
        if found is None:
            raise UnknownName(f"Docker has no network {name}, and there is {exc}") from exc
        raise Refused(f"there is {exc}; leave out --configuration") from exc
    networks = [await engine.find_network(one) for one in await engine.network_ids(settings.driver_name)]
    users = {
        other.name
        for other in networks
        if other is not None
        and (found is None or other.id != found.id)
        and other.options.get(CONFIGURATION, other.name) == configuration
    }
    if users:
        raise Refused(
            f"other Docker networks have the list {configuration}: {', '.join(sorted(users))}; remove them first, or "
            "leave out --configuration"
        )
    if found is None:
        _refuse_reserved(network)
    return network


def _refuse_reserved(network: NetworkConfigurationList) -> None:
    """Refuse a list that no Docker network has while addresses are reserved: another runtime may use it."""
    reserved = list_reservations(network)
    if reserved:
        raise Refused(
            f"Docker has no network with the list {network.name}, and addresses of it are reserved, such as "
            f"{reserved[0].address}: another runtime may use it. If none does, remove {network.source} yourself"
        )


async def _remove_bridge(
    settings: Settings, network: NetworkConfigurationList, others: Sequence[NetworkConfigurationList]
) -> list[str]:
    """Remove the bridge that `network create` has named, unless something uses it; no plugin removes a bridge.

    A bridge of another name may be the operator's own.
    """
    name = bridge_name(network.name)
    if name not in bridges(network) or any(name in bridges(other) for other in others):
        return []
    kernel = Kernel(reply_limit_s=settings.netlink_timeout_s)
    waited_s = 0.0
    while True:
        links = await kernel.host_links()
        bridge = next((link for link in links if link.state.name == name and link.state.kind == "bridge"), None)
        if bridge is None:
            return []
        ports = [link.state.name for link in links if link.master == bridge.index]
        if not ports:
            await kernel.delete_host_link(bridge, "")
            return [f"bridge {name} was removed"]
        if waited_s >= _EMPTY_LIMIT_S:
            return [f"bridge {name} was kept, because it has links: {', '.join(ports)}; then: ip link del {name}"]
        await asyncio.sleep(_LOOK_EVERY_S)
        waited_s += _LOOK_EVERY_S


def _remove_guards(network: NetworkConfigurationList) -> list[str]:
    """Have what the plugin `egress` has made for a bridge end with it: the next one of its name may not be guarded."""
    if not is_guarded(network) and not GUARD_RECORDS.exists():
        return []
    try:
        removed = get_strings(as_object(ask_egress("sweep"), "the answer"), "removed")
    except (EgressFailed, JsonError) as exc:
        return [f"guards of removed bridges were kept: {exc}; then: cni-egress sweep"]
    return [f"the guard of bridge {name} was removed" for name in bridges(network) if name in removed]


async def _remove_isolation(network: NetworkConfigurationList, others: Sequence[NetworkConfigurationList]) -> list[str]:
    """Remove the rules by which the plugin `firewall` keeps other networks off the bridges of a list."""
    if not any(plugin.type == "firewall" and plugin.document.get("ingressPolicy") for plugin in network.plugins):
        return []
    names = set(bridges(network)).difference(*map(bridges, others))
    removed = 0
    for command in ("iptables", "ip6tables"):
        for rule in isolation_rules(await read_lines(f"{command}-save", "--table", "filter") or (), names):
            with suppress(OSError):  # it is missing, so it has made no rules
                removed += (
                    await run_command(command, "--wait", "5", "--delete", *rule, limit_s=_RULE_LIMIT_S)
                ).succeeded
    return [f"{removed} rules in {' and '.join(_ISOLATION)} were removed"] if removed else []


def isolation_rules(saved: Iterable[str], names: Collection[str]) -> Iterator[tuple[str, ...]]:
    """Yield the rules of bridges in the chains of isolation, of what `iptables-save` prints, as chain and arguments."""
    for rule in parse_saved_rules(saved).rules:
        words = tuple(shlex.split(rule.text))[1:]
        if rule.chain in _ISOLATION and any(flag in {"-i", "-o"} and name in names for flag, name in pairwise(words)):
            yield words
