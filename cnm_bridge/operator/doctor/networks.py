# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the configurations are valid, their plugins exist, and their addresses are free."""

import shlex
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from itertools import combinations
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError
from cni_invoker import (
    CniError,
    ConfigurationDirectories,
    Limits,
    NetworkConfigurationList,
    Runtime,
    installed_plugins,
    run_preflight,
)
from cnm_bridge.core.errors import Refused, did_you_mean
from cnm_bridge.core.lists.address_ranges import (
    find_pool_problem,
    find_ranges,
    overlap,
    parse_ranges,
)
from cnm_bridge.core.lists.dhcp import daemon_socket, find_dhcp
from cnm_bridge.core.lists.plugins import bridges, forwarding_links
from cnm_bridge.core.planning.mac import plugins_mac
from cnm_bridge.core.settings import Settings
from cnm_bridge.driver.attach.leases import find_listener
from cnm_bridge.driver.ipam.sections import Sections, read_section, section_files
from cnm_bridge.driver.recovery.artifacts import PluginArtifact, list_reservations
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts, Finding, Severity, error, note, warning

_PACKAGE: Final = "containernetworking-plugins"
_CACHE_DIRECTORIES: Final = (Path("/var/lib/cni"), Path("/var/lib/cni/cache"))
"""Where other CNI runtimes on this host cache their attachments, in libcni's layout: cnitool, containerd, Podman and
nerdctl use libcni's default; cri-dockerd has the other one."""
_NEARLY_FULL: Final = 0.9
_YOUNG_S: Final = 60.0
"""A younger reservation may belong to an ADD of another runtime, which has not filled its cache yet."""


async def gather_networks(
    networks: Sequence[NetworkConfigurationList],
    settings: Settings,
    *,
    used: frozenset[str] | None,
    quick: bool,
    are_sections: bool = False,
) -> tuple[ConfiguredNetwork, ...]:
    """Return what is known about networks, or about IPAM sections, which are not asked whether a container starts.

    `used` are the CNI container IDs of the daemon's endpoints, and the addresses of containers; None if not known. With
    `quick` no plugin is executed.
    """
    gathered = [await _gather(network, settings, used, quick=quick) for network in networks]
    if are_sections:
        gathered = [
            replace(one, problems=tuple(dict.fromkeys(one.problems)), warnings=(), is_section=True) for one in gathered
        ]
    return tuple(gathered)


def find_sections(directories: ConfigurationDirectories) -> tuple[list[NetworkConfigurationList], list[str]]:
    """Return the lists of the IPAM sections that have files of their own, and what is wrong with the other files."""
    sections = Sections(directories)
    found: list[NetworkConfigurationList] = []
    broken: list[str] = []
    for file in section_files(directories.index().directories):
        try:
            found.append(sections.find(read_section(file).name).configuration)
        except (OSError, CniError, JsonError) as exc:
            broken.append(f"{file}: {exc}")
        except Refused as exc:  # it names the file
            broken.append(str(exc))
    return found, [*dict.fromkeys(broken)]


async def _gather(
    network: NetworkConfigurationList, settings: Settings, used: frozenset[str] | None, *, quick: bool
) -> ConfiguredNetwork:
    problems: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    if not quick:
        runtime = Runtime(settings.cni_bin_dirs, Limits(), in_process=installed_plugins())
        preflight = await run_preflight(runtime, network)
        missing = [plugin for plugin in preflight.plugins if plugin.path is None and not plugin.in_process]
        absent = tuple(f"{one.label}: {text}" for one in missing for text in one.problems)
        problems, warnings = preflight.all_problems, preflight.all_warnings
    try:
        parse_ranges(network)
        reserved = tuple(ip_address(one.address) for one in list_reservations(network) if one.address)
        plugins_mac(network, {}, {})
    except JsonError as exc:
        problems, reserved = (*problems, f"the plugins cannot parse it: {exc}"), ()
    except Refused as exc:
        problems = (*problems, str(exc))
    dhcp, plugin = "", find_dhcp(network)
    try:
        if plugin is not None:
            await find_listener(daemon_socket(plugin))
    except Refused as exc:
        dhcp = str(exc)
    return ConfiguredNetwork(
        network=network,
        problems=problems,
        missing=absent,
        warnings=warnings,
        reserved=reserved,
        dead=() if used is None else _find_dead(network, used),
        dhcp=dhcp,
    )


def _find_dead(network: NetworkConfigurationList, used: frozenset[str]) -> tuple[str, ...]:
    """Return the files of host-local's reservations on a network whose container neither we nor libcni's cache have."""
    try:
        found = list_reservations(network)
    except JsonError:
        return ()
    cached: list[str] = []
    for directory in _CACHE_DIRECTORIES:
        with suppress(OSError):  # the directory may not exist
            cached += (file.name for file in (directory / "results").iterdir())
    cached.sort()
    return tuple(
        one.what
        for one in found
        if used.isdisjoint((one.container_id, one.address)) and not _is_cached(one, cached) and _is_old(Path(one.what))
    )


def _is_cached(reservation: PluginArtifact, files: Sequence[str]) -> bool:
    """Return whether one of some sorted cache files is of a container (libcni `libcni/api.go`, getCacheFilePath)."""
    prefix = f"{reservation.network}-{reservation.container_id}-"
    index = bisect_left(files, prefix)
    return index < len(files) and files[index].startswith(prefix)


def _is_old(file: Path) -> bool:
    try:
        return file.stat().st_mtime < time.time() - _YOUNG_S
    except OSError:  # it was removed meanwhile
        return False


def check_networks(facts: Facts) -> Iterator[Finding]:
    """Find broken files, missing plugins, ranges that overlap or are full, and Docker networks that do not fit."""
    directories = ", ".join(map(str, facts.conf_dirs))
    if not (facts.networks or facts.sections or facts.installation.broken_files):
        yield note(
            "no-configuration",
            "configurations",
            f"there are none in {directories}",
            advice="cni-bridge network create NAME --subnet 10.22.0.0/16 makes one, with its Docker network",
        )
    for file in facts.installation.broken_files:
        yield error(
            "configuration-broken",
            "configurations",
            file,
            advice="correct or remove the file; `cni-invoker list` shows all network configuration lists",
        )
    for file in facts.installation.shadowed_files:
        yield warning(
            "configuration-shadowed", "configurations", file, advice="remove one of them, or give it another name"
        )
    yield from _check_docker_networks(facts)
    for configured in (*facts.networks, *facts.sections):
        yield from _check_plugins(facts, configured)
        yield from _check_ranges(facts, configured)
        yield from _check_reservations(configured)
    yield from _check_overlaps(facts)


def _check_docker_networks(facts: Facts) -> Iterator[Finding]:
    known = {configured.network.name: configured.network for configured in facts.networks}
    for docker in facts.engine.networks:
        subject = f"Docker network {docker.name}"
        configuration = known.get(docker.configuration)
        if configuration is None:
            near = did_you_mean(docker.configuration, known, cutoff=0.6)
            yield error(
                "configuration-missing",
                subject,
                f"there is no network configuration list {docker.configuration!r} in "
                f"{', '.join(map(str, facts.conf_dirs))}: no container starts on it" + (f"; {near}" if near else ""),
                advice=f"put the list there; or docker network rm {docker.name}",
            )
            continue
        problem = None
        with suppress(JsonError):  # found as a problem of the list
            problem = find_pool_problem(configuration, docker.pools)
        if problem is not None:
            yield error(
                "docker-pool",
                subject,
                f"{problem.text}: no container starts on it",
                fix=f"docker network rm {docker.name}; cni-bridge network create {docker.name} {docker.configuration}",
            )


def _check_reservations(configured: ConfiguredNetwork) -> Iterator[Finding]:
    if configured.dead:
        yield warning(
            "reservations-dead",
            configured.subject,
            f"{len(configured.dead)} of its reserved addresses belong to no container that Docker or libcni's "
            f"cache knows, such as {configured.dead[0]}; containers of runtimes without that cache are not seen here",
            fix=shlex.join(("rm", *configured.dead)),
            advice="keep them if a runtime without libcni's cache has their containers",
        )


def _check_plugins(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    subject = configured.subject
    validate = "" if configured.is_section else f"cni-invoker validate {configured.network.name}"
    for problem in configured.problems:
        if problem in configured.missing:
            install = f"apt-get install {_PACKAGE}, or " if _PACKAGE in problem else ""
            remedy = f"{install}put the plugin into one of {', '.join(map(str, facts.bin_dirs))}"
        else:
            remedy = f"correct {configured.network.source or 'its list'}"
        yield error("plugin-unusable", subject, problem, advice=f"{remedy}{validate and f'; then {validate}'}")
    if configured.dhcp:
        yield error("dhcp-daemon", subject, configured.dhcp, fix="systemctl enable --now cni-bridge-dhcp")
    for doubt in configured.warnings:
        yield warning("plugin-doubtful", subject, doubt, advice=validate)


def _check_ranges(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    network = configured.network
    links = forwarding_links(network)
    for one in find_ranges(network):
        used = one.count(configured.reserved)
        if one.size == 0 or used >= _NEARLY_FULL * one.size:
            is_full = used >= one.size
            yield Finding(
                severity=Severity.ERROR if is_full else Severity.WARNING,
                code="addresses-full" if is_full else "addresses-nearly-full",
                subject=configured.subject,
                text=f"{used} of the {one.size} addresses from {one.first} to {one.last} are reserved"
                + (": further containers do not start" if is_full else ""),
                advice="`cni-bridge ls` shows who has addresses; remove containers, or use a larger subnet",
            )
        for route in facts.routes if links else ():
            if route.link in links or not route.occupies(one.subnet, facts.links):
                continue
            if route.destination.num_addresses == 1 and one.contains(route.destination.network_address):
                continue  # of a container, as plugin ptp makes it
            yield error(
                "addresses-overlap-route",
                f"network {network.name}",
                f"its subnet {one.subnet} overlaps the host's route {route.destination}"
                + (f" through {route.link}" if route.link else "")
                + ": packets for one of them go to the other",
                advice=(
                    f"if {route.link} is left of a network that was removed: ip link del {route.link}. Otherwise "
                    if _is_unused(route.link, facts)
                    else ""
                )
                + f"choose another subnet in {network.source or 'its list'}; `ip route` shows what is taken",
            )


def _is_unused(name: str, facts: Facts) -> bool:
    """Return whether a link is a bridge that has no links and is in no list."""
    link = facts.links.get(name)
    listed = {bridge for configured in facts.networks for bridge in bridges(configured.network)}
    return link is not None and link.kind == "bridge" and not link.has_ports and name not in listed


def _check_overlaps(facts: Facts) -> Iterator[Finding]:
    ranges = [
        (configured.network.name, found) for configured in facts.networks for found in find_ranges(configured.network)
    ]
    for (name, one), (other_name, other) in combinations(ranges, 2):
        if (
            name != other_name
            and overlap(one.subnet, other.subnet)
            and not (one.subnet == other.subnet and one.is_apart(other))
        ):
            yield warning(
                "addresses-overlap",
                f"network {name}",
                f"its addresses {one.first} to {one.last} and those of network {other_name}, {other.first} to "
                f"{other.last}, overlap: both may assign the same address, and no container can be on both",
                advice="give one of them another subnet, or ranges (rangeStart, rangeEnd) that do not overlap",
            )
