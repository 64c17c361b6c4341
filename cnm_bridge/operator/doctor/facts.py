# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is known about a host, and what is wrong with it, with the command that fixes it. Pure.

None stands for a fact that could not be read, and has no consequences.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import PoolRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.operator.host import HostLink, HostRoute

SERVICE: Final = "cni-bridge.service"
SOCKET: Final = "cni-bridge.socket"
DOCKER: Final = "docker.service"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirewallFacts:
    """The packet filter.

    Attributes:
        iptables: What `iptables --version` prints, None if it is not installed.
        rules: The lines of `iptables-save -t filter`; None if they could not be read.
        dropping_chains: Native nftables chains at the forward hook that drop all new connections, e.g.
            `inet filter forward`.
    """

    iptables: str | None = None
    rules: Sequence[str] | None = None
    rules_ipv6: Sequence[str] | None = None
    has_nft: bool = False
    dropping_chains: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerNetwork:
    """A Docker network of our driver.

    Attributes:
        pools: The pools of Docker's IPAM, as `EngineNetwork` has them; none if addresses are left to the plugins.
        is_guarded: Whether it is guarded because of its options, whatever its list has.
    """

    name: str
    configuration: str
    pools: Sequence[PoolRecord] = ()
    containers: Sequence[str] = ()
    is_guarded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """The Docker engine.

    Attributes:
        version: E.g. `28.5.2+dfsg3`, None if it did not answer.
        namesake: The managed plugin that has the name of our driver, "" if there is none.
        unused_plugin: Our driver's managed plugin, if Docker has enabled it and does not find its driver; "" otherwise.
    """

    address: str
    version: str | None = None
    silence: str = ""
    is_rootless: bool = False
    networks: Sequence[DockerNetwork] = ()
    namesake: str = ""
    unused_plugin: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedEndpoint:
    """An endpoint in a running container.

    Attributes:
        container: The container's name; a short ID if the engine does not answer.
    """

    container: str
    configuration: str
    ways_out: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnjoinedContainer:
    """A running container that is not on some of the networks of our driver that Docker lists for it."""

    container: str
    networks: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardFacts:
    """What guards the containers of guarded networks."""

    status: JsonObject | None = field(default=None, hash=False)
    silence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredNetwork:
    """A network configuration list, or an IPAM section with a file of its own, and what is known about its plugins.

    Attributes:
        network: The list; that of a section has the IPAM plugin as its only plugin.
        problems: What is sure to make ADD fail.
        missing: Those of them that say that a plugin is not there.
        warnings: What could not be verified.
        reserved: The addresses that host-local has assigned.
        dead: The files of its reservations whose container has gone; empty if no daemon answers.
        dhcp: Why the CNI DHCP daemon that it needs does not answer; "" if it does.
    """

    network: NetworkConfigurationList
    problems: Sequence[str] = ()
    missing: Sequence[str] = ()
    warnings: Sequence[str] = ()
    reserved: Sequence[IPv4Address | IPv6Address] = ()
    dead: Sequence[str] = ()
    dhcp: str = ""
    is_section: bool = False

    @property
    def subject(self) -> str:
        """What it is, with its name."""
        return f"{'IPAM section' if self.is_section else 'network'} {self.network.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathFacts:
    """A file or directory that root trusts.

    Attributes:
        leads_to: What root trusts, if this is only a directory on the way there; None for what root trusts itself.
    """

    path: Path
    owner: int
    mode: int
    is_private: bool = False
    leads_to: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallationFacts:
    """The installation of the daemon.

    Attributes:
        units: The state of each unit as `systemctl is-enabled`, "" if there is no such unit; None without systemd.
        daemon_pid: The process ID of the running daemon, None if none runs.
        mistakes: What is wrong in the daemon's configuration file, each with the file's name.
        broken_files: CNI configuration files, and IPAM sections, that cannot be used, with the reason.
        shadowed_files: Configuration files that an earlier one hides.
    """

    is_root: bool = True
    units: Mapping[str, str] | None = None
    paths: Sequence[PathFacts] = ()
    free_bytes: Mapping[Path, int] = field(default_factory=dict)
    daemon_pid: int | None = None
    mistakes: Sequence[str] = ()
    broken_files: Sequence[str] = ()
    shadowed_files: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that is known about a host.

    Attributes:
        sysctls: Values by name, e.g. `net.ipv4.ip_forward`; without those that the kernel does not have.
        endpoints: The endpoints in running containers; empty if no daemon answers.
        unjoined: Running containers that were not connected; empty if no daemon answers.
        guard: What guards the containers of guarded networks; None if there is no such network.
    """

    kernel: str
    sysctls: Mapping[str, str]
    firewall: FirewallFacts
    engine: EngineFacts
    networks: Sequence[ConfiguredNetwork]
    routes: Sequence[HostRoute]
    conf_dirs: Sequence[Path]
    bin_dirs: Sequence[Path]
    installation: InstallationFacts
    sections: Sequence[ConfiguredNetwork] = ()
    links: Mapping[str, HostLink] = field(default_factory=dict)
    endpoints: Sequence[JoinedEndpoint] = ()
    unjoined: Sequence[UnjoinedContainer] = ()
    guard: GuardFacts | None = None


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """Containers do not work, or not all of them."""
    WARNING = "warning"
    """They work now, and may not work later or in other circumstances."""
    NOTE = "note"
    """Something that an operator should know; it does not count as a fault."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        code: What kind of finding it is, the same in all versions, e.g. `forward-dropped`.
        subject: What it is about, e.g. `network blue`.
        fix: The command that fixes it, as it is typed into a root shell; "" if no command does.
        advice: What else helps, in words: what has to be changed by hand, or another way; "" if there is nothing else.
    """

    severity: Severity
    code: str
    subject: str
    text: str
    fix: str = ""
    advice: str = ""


error: Final = partial(Finding, Severity.ERROR)
warning: Final = partial(Finding, Severity.WARNING)
note: Final = partial(Finding, Severity.NOTE)
