# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All settings and limits of the daemon, with defaults and units.

Where a value comes from (command line, environment, file) is the business of `cnm_bridge.cli`.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

__all__ = ["LogFormat", "LogLevel", "Settings"]


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """How a line looks."""

    AUTO = "auto"
    """TEXT on a terminal, JSON elsewhere."""
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The daemon's settings. Those an operator can set are in docs/configuration.md; the others are limits.

    Attributes:
        socket: The plugin socket. Docker looks for drivers in `/run/docker/plugins`, by file name.
        cni_conf_dirs: Directories of network configuration lists; in the first, a name wins.
        cni_bin_dirs: Directories of CNI plugins; in the first, a name wins.
        state_dir: What must survive a reboot.
        run_dir: What must not: the staging namespaces.
        docker_host: The engine's API, `unix:///path` or `tcp://host:port`.
        plugin_timeout_s: How long one execution of a plugin may take.
        engine_timeout_s: How long one question to the engine may take for which a call waits, two at most.
        engine_background_timeout_s: How long one may take in the background.
        binding_timeout_s: How long CreateEndpoint waits for the name of a network that was made a moment ago.
        recovery_timeout_s: How long the first answer waits for the cleanup after the previous run.
        reconcile_interval_s: The pause between two comparisons of the records with engine and kernel.
        reconcile_grace_s: How far apart the two looks of one round are.
        netlink_timeout_s: How long the kernel may take to answer one netlink request.
        drain_timeout_s: How long SIGTERM waits for running calls and teardowns.
        cni_gc: Whether the networks' names are ours alone, so that plugins may clean up what is not ours.
        cni_gc_every_s: How often they are asked to.
        log_level: The lowest level that is logged.
        log_format: How a line looks.
    """

    socket: Path = Path("/run/docker/plugins/cni-bridge.sock")
    cni_conf_dirs: tuple[Path, ...] = (Path("/etc/cni/net.d"),)
    cni_bin_dirs: tuple[Path, ...] = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
    state_dir: Path = Path("/var/lib/cni-bridge")
    run_dir: Path = Path("/run/cni-bridge")
    docker_host: str = "unix:///var/run/docker.sock"
    plugin_timeout_s: float = 60.0
    engine_timeout_s: float = 1.0
    engine_background_timeout_s: float = 30.0
    binding_timeout_s: float = 2.0
    recovery_timeout_s: float = 10.0
    reconcile_interval_s: float = 300.0
    reconcile_grace_s: float = 5.0
    netlink_timeout_s: float = 10.0
    drain_timeout_s: float = 80.0
    cni_gc: bool = False
    cni_gc_every_s: float = 600.0
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.AUTO
