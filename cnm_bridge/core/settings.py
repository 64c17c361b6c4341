# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All settings and limits of the daemon, with defaults and units.

The annotation of a field that an operator can set has its help text: `cnm_bridge.operator.cli.options` makes an option
of it.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated


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
    """The daemon's settings, see the help of each and docs/configuration.md; and its limits.

    Attributes:
        binding_timeout_s: Time limit of CreateEndpoint for learning the name of a new network.
        recovery_timeout_s: Time limit for the cleanup after the previous run, before the first call is answered.
        reconcile_grace_s: Pause between the two comparisons of one round.
        netlink_timeout_s: Time limit of one netlink reply.
    """

    config: Annotated[Path, "Configuration file (TOML); the default one may be missing."] = Path(
        "/etc/cni-bridge/config.toml"
    )
    socket: Annotated[Path, "The plugin socket; its file name is the name of the driver in Docker."] = Path(
        "/run/docker/plugins/cni-bridge.sock"
    )
    driver: Annotated[
        str, "The name of the driver in Docker, if it is not the file name of --socket: that of a managed plugin."
    ] = ""
    admin_socket: Annotated[
        Path | None, "The socket of the operator's commands.  [default: admin.sock in --run-dir]"
    ] = None
    metrics_listen: Annotated[str, "Serve metrics at http://ADDRESS:PORT/metrics, to everyone who can connect."] = ""
    cni_conf_dirs: Annotated[
        tuple[Path, ...], "Directory of CNI network configurations. Repeatable; the first that has a name wins."
    ] = (Path("/etc/cni/net.d"),)
    cni_bin_dirs: Annotated[
        tuple[Path, ...], "Directory of CNI plugins. Repeatable; the first that has a plugin wins."
    ] = (Path("/opt/cni/bin"), Path("/usr/lib/cni"))
    state_dir: Annotated[Path, "Directory of the state; must survive a reboot."] = Path("/var/lib/cni-bridge")
    run_dir: Annotated[Path, "Directory of the staging namespaces; may be lost at a reboot."] = Path("/run/cni-bridge")
    docker_host: Annotated[str, "Address of the Docker Engine API."] = "unix:///var/run/docker.sock"
    engine_timeout_s: Annotated[float, "Time limit of a query to the Docker Engine during a call, in seconds."] = 1.0
    engine_background_timeout_s: Annotated[
        float, "Time limit of a query to the Docker Engine in the background, in seconds."
    ] = 30.0
    plugin_timeout_s: Annotated[float, "Time limit of one execution of a plugin, in seconds."] = 60.0
    reconcile_interval_s: Annotated[
        float, "Seconds between two comparisons of the state with Docker and the kernel."
    ] = 300.0
    boot_recovery_timeout_s: Annotated[
        float, "Seconds that Docker waits at most while the endpoints from before the reboot are torn down."
    ] = 300.0
    drain_timeout_s: Annotated[float, "Seconds that SIGTERM waits for running calls and teardowns."] = 80.0
    attach: Annotated[
        AttachOption, "How to attach endpoints for which cni.attach is not set; auto loses nothing, fast is faster."
    ] = AttachOption.AUTO
    scope: Annotated[
        Scope, "local, or global in an instance of its own for swarms whose manager gives all addresses."
    ] = Scope.LOCAL
    cni_arg_names: Annotated[
        tuple[str, ...],
        "Name of an argument of plugins (cni.args.NAME), which Docker's command line puts in lower case. Repeatable.",
    ] = ()
    log_level: Annotated[LogLevel, "The lowest level that is logged."] = LogLevel.INFO
    log_format: Annotated[LogFormat, "auto is text on a terminal and JSON elsewhere."] = LogFormat.AUTO
    binding_timeout_s: float = 2.0
    recovery_timeout_s: float = 10.0
    reconcile_grace_s: float = 5.0
    netlink_timeout_s: float = 10.0

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
