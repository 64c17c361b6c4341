# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the configurations are valid, their plugins exist, and their addresses are free."""

import shlex
from collections.abc import Iterator
from contextlib import suppress
from difflib import get_close_matches
from itertools import combinations
from typing import Final

from cni_bridge_spec import JsonError
from cnm_bridge.core.planning.addresses.address_ranges import find_pool_problem, find_ranges, overlap
from cnm_bridge.core.planning.plugin_needs import bridges, forwarding_links
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, Facts
from cnm_bridge.operator.doctor.finding import Finding, Severity

_NEARLY_FULL: Final = 0.9


def check_networks(facts: Facts) -> Iterator[Finding]:
    """Find broken files, missing plugins, ranges that overlap or are full, and Docker networks that do not fit."""
    directories = ", ".join(map(str, facts.conf_dirs))
    if not (facts.networks or facts.sections or facts.installation.broken_files):
        yield Finding(
            severity=Severity.NOTE,
            code="no-configuration",
            subject="configurations",
            text=f"there are none in {directories}",
            advice="cni-bridge network create NAME --subnet 10.22.0.0/16 makes one, with its Docker network",
        )
    for file in facts.installation.broken_files:
        yield Finding(
            severity=Severity.ERROR,
            code="configuration-broken",
            subject="configurations",
            text=file,
            advice="correct or remove the file; `cni-invoker list` shows all network configuration lists",
        )
    for file in facts.installation.shadowed_files:
        yield Finding(
            severity=Severity.WARNING,
            code="configuration-shadowed",
            subject="configurations",
            text=file,
            advice="remove one of them, or give it another name",
        )
    yield from _check_docker_networks(facts)
    yield from _check_elsewhere(facts)
    for configured in (*facts.networks, *facts.sections):
        yield from _check_plugins(facts, configured)
        yield from _check_ranges(facts, configured)
        yield from _check_reservations(configured)
    yield from _check_overlaps(facts)


def _check_docker_networks(facts: Facts) -> Iterator[Finding]:
    known = {one.network.name: one.network for one in facts.networks}
    for docker in facts.engine.networks:
        if docker.configuration is None:
            continue
        subject = f"Docker network {docker.name}"
        configuration = known.get(docker.configuration)
        if configuration is None:
            near = get_close_matches(docker.configuration, known, n=1)
            yield Finding(
                severity=Severity.ERROR,
                code="configuration-missing",
                subject=subject,
                text=f"there is no network configuration list {docker.configuration!r} in "
                f"{', '.join(map(str, facts.conf_dirs))}: no container starts on it"
                + (f"; did you mean {near[0]}?" if near else ""),
                advice=f"put the list there; or docker network rm {docker.name}",
            )
            continue
        problem = None
        with suppress(JsonError):  # found as a problem of the list
            problem = find_pool_problem(configuration, docker.pools)
        if problem is not None:
            yield Finding(
                severity=Severity.ERROR,
                code="docker-pool",
                subject=subject,
                text=f"{problem.text}: no container starts on it",
                fix=f"docker network rm {docker.name}; cni-bridge network create {docker.name} {docker.configuration}",
            )


def _check_elsewhere(facts: Facts) -> Iterator[Finding]:
    """Find plugins that are installed where the daemon does not look."""
    users = [one for one in (*facts.networks, *facts.sections) if one.elsewhere]
    files = {name: file for one in users for name, file in one.elsewhere.items()}
    if files:
        target = facts.bin_dirs[0]
        where = sorted({str(file.parent) for file in files.values()})
        yield Finding(
            severity=Severity.ERROR,
            code="plugins-elsewhere",
            subject=f"plugins {', '.join(sorted(files))}",
            text=f"they are in {', '.join(where)}, where the daemon does not look; it looks in "
            f"{', '.join(map(str, facts.bin_dirs))}: no container starts on "
            f"{', '.join(one.network.name for one in users)}",
            fix=f"mkdir -p {target} && ln -s {' '.join(map(str, files.values()))} {target}/",
            advice="add the directory to cni-bin-dir in /etc/cni-bridge/config.toml, and: systemctl restart cni-bridge",
        )


def _check_reservations(configured: ConfiguredNetwork) -> Iterator[Finding]:
    if configured.stale:
        yield Finding(
            severity=Severity.WARNING,
            code="reservations-stale",
            subject=configured.subject,
            text=f"{len(configured.stale)} of its reserved addresses belong to no container, such as "
            f"{configured.stale[0]}",
            fix=shlex.join(("rm", *configured.stale)),
            advice="keep them if a runtime without libcni's cache has their containers",
        )


def _check_plugins(facts: Facts, configured: ConfiguredNetwork) -> Iterator[Finding]:
    subject = configured.subject
    validate = "" if configured.is_section else f"cni-invoker validate {configured.network.name}"
    for problem in configured.problems:
        yield Finding(
            severity=Severity.ERROR,
            code="plugin-unusable",
            subject=subject,
            text=problem,
            advice="apt-get install containernetworking-plugins, or put the plugin into one of "
            f"{', '.join(map(str, facts.bin_dirs))}{validate and f'; then {validate}'}",
        )
    if configured.dhcp is not None:
        fault = configured.dhcp
        yield Finding(
            severity=Severity.ERROR,
            code="dhcp-daemon",
            subject=subject,
            text=fault.text,
            fix=fault.fix,
            advice=fault.advice,
        )
    for warning in configured.warnings:
        yield Finding(
            severity=Severity.WARNING,
            code="plugin-doubtful",
            subject=subject,
            text=warning,
            advice=validate,
        )


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
            yield Finding(
                severity=Severity.ERROR,
                code="addresses-overlap-route",
                subject=f"network {network.name}",
                text=f"its subnet {one.subnet} overlaps the host's route {route.destination}"
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
    listed = {bridge for one in facts.networks for bridge in bridges(one.network)}
    return link is not None and link.kind == "bridge" and not link.has_ports and name not in listed


def _check_overlaps(facts: Facts) -> Iterator[Finding]:
    ranges = [(one.network.name, found) for one in facts.networks for found in find_ranges(one.network)]
    for (name, one), (other_name, other) in combinations(ranges, 2):
        if (
            name != other_name
            and overlap(one.subnet, other.subnet)
            and not (one.subnet == other.subnet and one.is_apart(other))
        ):
            yield Finding(
                severity=Severity.WARNING,
                code="addresses-overlap",
                subject=f"network {name}",
                text=f"its addresses {one.first} to {one.last} and those of network {other_name}, {other.first} to "
                f"{other.last}, overlap: both may assign the same address, and no container can be on both",
                advice="give one of them another subnet, or ranges (rangeStart, rangeEnd) that do not overlap",
            )
