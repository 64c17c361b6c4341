# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads the configurations, and asks their plugins."""

import os
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonError
from cni_invoker import CniError, ConfigurationDirectories, Limits, NetworkConfigurationList, Runtime, run_preflight
from cnm_bridge.core.engine_facts import SANDBOX_AT_JOIN, EngineRelease
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.model.dhcp import daemon_socket, find_dhcp
from cnm_bridge.core.planning.addresses.address_ranges import parse_ranges, reservation_directories
from cnm_bridge.core.planning.mac import plugins_mac
from cnm_bridge.core.planning.plugin_suitability import find_unsuitable
from cnm_bridge.core.settings import AttachOption, Settings
from cnm_bridge.driver.attach.leases import find_listener
from cnm_bridge.driver.ipam.sections import Sections, read_section, section_files
from cnm_bridge.driver.recovery.artifacts import find_reservations
from cnm_bridge.operator.doctor.facts import ConfiguredNetwork, DhcpFault
from cnm_bridge.operator.doctor.gathering.endpoints import find_stale

_SYSTEMD: Final = 1
"""Process ID."""


_USUAL: Final = tuple(
    map(
        Path,
        (
            *("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/lib/cni", "/usr/local/libexec/cni"),
            *("/usr/lib64/cni", "/usr/lib/cni/bin", "/usr/local/bin/cni", "/var/lib/rancher/k3s/data/current/bin"),
        ),
    )
)
"""Where distributions, nerdctl, Podman and k3s install plugins."""


async def gather_networks(
    networks: Sequence[NetworkConfigurationList],
    settings: Settings,
    release: EngineRelease | None,
    *,
    used: frozenset[str] | None,
    quick: bool,
    are_sections: bool = False,
) -> tuple[ConfiguredNetwork, ...]:
    """Return what is known about networks, or about IPAM sections.

    Args:
        networks: Their lists.
        settings: The daemon's settings.
        release: The engine's release, None if it is not known.
        used: The CNI container IDs of the daemon's endpoints, and the addresses of containers; None if not known.
        quick: Whether no plugin may be executed.
        are_sections: Whether they are the lists of sections, which are not asked whether a container starts on them.
    """
    gathered = [await _gather(network, settings, release, used, quick=quick) for network in networks]
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
    network: NetworkConfigurationList,
    settings: Settings,
    release: EngineRelease | None,
    used: frozenset[str] | None,
    *,
    quick: bool,
) -> ConfiguredNetwork:
    problems: tuple[str, ...] = ()
    elsewhere: dict[str, Path] = {}
    warnings: tuple[str, ...] = ()
    if not quick:
        preflight = await run_preflight(Runtime(settings.cni_bin_dirs, Limits()), network)
        missing = [one for one in preflight.plugins if one.path is None]
        elsewhere = {one.type: file for one in missing if (file := _find_elsewhere(one.type)) is not None}
        labels = tuple(f"{one.label}: " for one in missing if one.type in elsewhere)
        problems = tuple(text for text in preflight.all_problems if not text.startswith(labels))
        warnings = preflight.all_warnings
    refusal = _find_refusal(network, settings.attach, release)
    if refusal is not None:
        warnings = (*warnings, refusal)
    try:
        parse_ranges(network)
        reserved = _reserved(network)
        plugins_mac(network, {}, {})
    except JsonError as exc:
        problems, reserved = (*problems, f"the plugins cannot parse it: {exc}"), ()
    except Refused as exc:
        problems = (*problems, str(exc))
    dhcp = await _examine_dhcp(network)
    return ConfiguredNetwork(
        network=network,
        problems=problems,
        warnings=warnings,
        reserved=reserved,
        stale=() if used is None else find_stale(network, used),
        dhcp=dhcp,
        elsewhere=elsewhere,
        text=_read_text(network.source),
    )


def _find_elsewhere(plugin_type: str) -> Path | None:
    """Return the executable of a plugin in one of the usual directories."""
    files = (directory / plugin_type for directory in _USUAL)
    return next((file for file in files if file.is_file() and os.access(file, os.X_OK)), None)


def _read_text(source: Path | None) -> str | None:
    """Return the text of a list that is in one file."""
    if source is None or source.with_suffix("").is_dir():
        return None
    try:
        return source.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


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


async def _examine_dhcp(network: NetworkConfigurationList) -> DhcpFault | None:
    """Return what is wrong with the CNI DHCP daemon of a list; None if it needs none."""
    plugin = find_dhcp(network)
    if plugin is None:
        return None
    try:
        pid = await find_listener(daemon_socket(plugin))
    except Refused as exc:
        return DhcpFault(text=str(exc), fix="systemctl enable --now cni-bridge-dhcp")
    if pid == _SYSTEMD:
        what = f"systemd holds the socket {daemon_socket(plugin)}, so a restart of the CNI DHCP daemon is missed"
        return DhcpFault(
            text=f"{what} if cni-bridge does not run then",
            advice="use the unit cni-bridge-dhcp, which has no socket unit",
        )
    return None


def _reserved(network: NetworkConfigurationList) -> tuple[IPv4Address | IPv6Address, ...]:
    return tuple(
        ip_address(one.address)
        for directory in reservation_directories(network)
        for one in find_reservations(Path(directory), network.name).owned
        if one.address
    )
