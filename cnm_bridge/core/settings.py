# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All settings and limits of the daemon, with defaults and units.

`cnm_bridge.operator.cli` reads their values from command line, environment and file.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class AttachOption(StrEnum):
    """The values of `cni.attach`: how endpoints are attached."""

    AUTO = "auto"
    """`move` if it can do what the list and the options need, else `sandbox`."""
    FAST = "fast"
    """`sandbox` where Docker learns the same addresses and MAC as with `move`; it does not know such a link."""
    MOVE = "move"
    """Plugins run in a staging namespace, and Docker moves the link into the sandbox."""
    SANDBOX = "sandbox"
    """Plugins run in the sandbox."""


class Scope(StrEnum):
    """Who gives networks their addresses."""

    LOCAL = "local"
    """Each node: its CNI configuration, or its Docker's IPAM."""
    GLOBAL = "global"
    """A swarm's manager, for all nodes."""


class LogLevel(StrEnum):
    """The lowest level that is logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """The format of a log line."""

    AUTO = "auto"
    """TEXT on a terminal, JSON elsewhere."""
    JSON = "json"
    TEXT = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The daemon's settings. Those an operator can set are in docs/configuration.md; the others are limits.

    Attributes:
        socket: The plugin socket. Docker looks for drivers in `/run/docker/plugins`, by file name.
        driver: This driver's name in Docker; "" for the file name of `socket`.
        admin_socket: The socket of the operator's commands; None for `admin.sock` in `run_dir`.
        cni_conf_dirs: Directories of network configuration lists; the first that has a name wins.
        cni_bin_dirs: Directories of CNI plugins; the first that has a plugin wins.
        state_dir: Directory of the database; must survive a reboot.
        run_dir: Directory of the staging namespaces; may be lost at a reboot.
        metrics_listen: `ADDRESS:PORT` at which metrics are served over HTTP, for everyone who can connect; "" for none.
        docker_host: The engine's API, `unix:///path` or `tcp://host:port`.
        plugin_timeout_s: Time limit of one execution of a plugin.
        engine_timeout_s: Time limit of one query to the engine during a call; a call makes at most two.
        engine_background_timeout_s: Time limit of one query to the engine in the background.
        binding_timeout_s: Time limit of CreateEndpoint for learning the name of a new network.
        recovery_timeout_s: Time limit for the cleanup after the previous run, before the first call is answered.
        boot_recovery_timeout_s: The same after a reboot, if a DEL ends within each `recovery_timeout_s`.
        reconcile_interval_s: Pause between two rounds that compare the records with engine and kernel.
        reconcile_grace_s: Pause between the two comparisons of one round.
        netlink_timeout_s: Time limit of one netlink reply.
        drain_timeout_s: Time limit of SIGTERM for running calls and teardowns.
        attach: How to attach endpoints for which `cni.attach` is not set.
        scope: Who gives networks their addresses. It must not change while Docker has networks of this driver.
        allow_inline: Whether a network may bring its own list (`cni.conflist`), which runs plugins with arguments of
            the caller's choice.
        cni_arg_names: Names of arguments (`cni.args.NAME`) that plugins read, as they spell them.
        log_level: The lowest level that is logged.
        log_format: The format of a log line.
    """

    socket: Path = Path("/run/docker/plugins/cni-bridge.sock")
    driver: str = ""
    admin_socket: Path | None = None
    cni_conf_dirs: tuple[Path, ...] = (Path("/etc/cni/net.d"),)
    cni_bin_dirs: tuple[Path, ...] = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
    state_dir: Path = Path("/var/lib/cni-bridge")
    run_dir: Path = Path("/run/cni-bridge")
    metrics_listen: str = ""
    docker_host: str = "unix:///var/run/docker.sock"
    plugin_timeout_s: float = 60.0
    engine_timeout_s: float = 1.0
    engine_background_timeout_s: float = 30.0
    binding_timeout_s: float = 2.0
    recovery_timeout_s: float = 10.0
    boot_recovery_timeout_s: float = 300.0
    reconcile_interval_s: float = 300.0
    reconcile_grace_s: float = 5.0
    netlink_timeout_s: float = 10.0
    drain_timeout_s: float = 80.0
    attach: AttachOption = AttachOption.AUTO
    scope: Scope = Scope.LOCAL
    allow_inline: bool = False
    cni_arg_names: tuple[str, ...] = ()
    log_level: LogLevel = LogLevel.INFO
    log_format: LogFormat = LogFormat.AUTO

    @property
    def driver_name(self) -> str:
        """This driver's name in Docker: of a managed plugin with its tag, e.g. `cni:latest`."""
        return self.driver or self.socket.stem

    @property
    def admin_path(self) -> Path:
        """The path of the admin socket."""
        return self.run_dir / "admin.sock" if self.admin_socket is None else self.admin_socket


def option_name(setting: str) -> str:
    """Return an operator's name for a field of `Settings`, e.g. `cni-conf-dir` for `cni_conf_dirs`."""
    return setting.removesuffix("_s").replace("_dirs", "_dir").replace("_", "-")
