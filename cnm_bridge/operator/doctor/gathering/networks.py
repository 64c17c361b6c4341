# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads the configurations, and asks their plugins."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError
from cni_invoker import Limits, NetworkConfigurationList, Runtime, run_preflight
from cnm_bridge.core.engine_facts import SANDBOX_AT_JOIN, EngineRelease
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.model.dhcp import daemon_socket, find_dhcp
from cnm_bridge.core.planning.addresses.address_ranges import parse_ranges, reservation_directories
from cnm_bridge.core.planning.plugin_suitability import find_unsuitable
from cnm_bridge.core.settings import AttachOption, Settings
from cnm_bridge.driver.attach.in_sandbox.dhcp_daemon import find_listener
from cnm_bridge.driver.recovery.artifacts import find_reservations
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork

_SYSTEMD: Final = 1
"""Process ID."""


async def gather_networks(
    networks: Sequence[NetworkConfigurationList], settings: Settings, release: EngineRelease | None, *, quick: bool
) -> tuple[ConfiguredNetwork, ...]:
    """Return what is known about networks.

    Args:
        networks: Their lists.
        settings: The daemon's settings.
        release: The engine's release, None if it is not known.
        quick: Whether no plugin may be executed.
    """
    return tuple([await _gather(network, settings, release, quick=quick) for network in networks])


async def _gather(
    network: NetworkConfigurationList, settings: Settings, release: EngineRelease | None, *, quick: bool
) -> ConfiguredNetwork:
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    if not quick:
        preflight = await run_preflight(Runtime(settings.cni_bin_dirs, Limits()), network)
        problems, warnings = preflight.all_problems, preflight.all_warnings
    refusal = _find_refusal(network, settings.attach, release)
    if refusal is not None:
        warnings = (*warnings, refusal)
    try:
        parse_ranges(network)
        reserved = _reserved(network)
    except JsonError as exc:
        problems, reserved = (*problems, f"the plugins cannot parse it: {exc}"), ()
    dhcp = await _examine_dhcp(network)
    return ConfiguredNetwork(network=network, problems=problems, warnings=warnings, reserved=reserved, dhcp=dhcp)


def _find_refusal(network: NetworkConfigurationList, attach: AttachOption, release: EngineRelease | None) -> str | None:
    """Return why a container on a network without `cni.attach` does not start, None if its list is no reason."""
    unsuitable = find_unsuitable(network)
    if unsuitable is None:
        return None
    if release is not None and not release.makes_sandbox_first:
        return (
            f"a container on it does not start with Docker Engine {release}: {unsuitable}; "
            f"use Docker Engine {SANDBOX_AT_JOIN} or newer"
        )
    if attach is AttachOption.MOVE:
        return f"a container on it does not start in attach mode move: {unsuitable}"
    return None


async def _examine_dhcp(network: NetworkConfigurationList) -> tuple[str, str] | None:
    """Return what is wrong with the CNI DHCP daemon of a list and how to fix it; None if it needs none."""
    plugin = find_dhcp(network)
    if plugin is None:
        return None
    try:
        pid = await find_listener(daemon_socket(plugin))
    except Refused as exc:
        return str(exc), "systemctl enable --now cni-bridge-dhcp"
    if pid == _SYSTEMD:
        what = f"systemd holds the socket {daemon_socket(plugin)}, so a restart of the CNI DHCP daemon is missed"
        return f"{what} if cni-bridge does not run then", "use the unit cni-bridge-dhcp, which has no socket unit"
    return None


def _reserved(network: NetworkConfigurationList) -> tuple[IPv4Address | IPv6Address, ...]:
    return tuple(
        ip_address(one.address)
        for directory in reservation_directories(network)
        for one in find_reservations(Path(directory), network.name).owned
        if one.address
    )
