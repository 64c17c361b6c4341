# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All settings of the daemon."""

from typing import Final

import click

from cnm_bridge.core.settings import AttachOption, LogFormat, LogLevel, Settings
from cnm_bridge.operator.cli.settings.setting import DIRECTORY, FILE, NETWORK, SECONDS, Setting
from cnm_bridge.operator.cli.settings.types import EngineAddress, ListenAddress, MetricsAddress

__all__ = [
    "ADMIN_SOCKET",
    "ATTACH",
    "DIRECTORIES",
    "DOCKER_HOST",
    "DRIVER",
    "RUN_DIR",
    "SETTINGS",
    "SOCKET",
    "STATE_DIR",
]

_DEFAULTS: Final = Settings()

STATE_DIR: Final = Setting(
    name="state-dir",
    parameter="state_dir",
    type=DIRECTORY,
    default=_DEFAULTS.state_dir,
    help="Directory of the state; must survive a reboot.",
)

SOCKET: Final = Setting(
    name="socket",
    parameter="socket",
    type=FILE,
    default=_DEFAULTS.socket,
    help="The plugin socket; its file name is the name of the driver in Docker.",
)

DRIVER: Final = Setting(
    name="driver",
    parameter="driver",
    type=click.STRING,
    default=_DEFAULTS.driver,
    help="The name of the driver in Docker, if it is not the file name of --socket: that of a managed plugin.",
)

DOCKER_HOST: Final = Setting(
    name="docker-host",
    parameter="docker_host",
    type=EngineAddress(),
    fallback="DOCKER_HOST",
    default=_DEFAULTS.docker_host,
    help="Address of the Docker Engine API.",
)

ATTACH: Final = Setting(
    name="attach",
    parameter="attach",
    type=click.Choice(AttachOption, case_sensitive=False),
    default=_DEFAULTS.attach.value,
    help="How to attach endpoints for which cni.attach is not set; auto is the fastest way that is possible.",
)

ADMIN_SOCKET: Final = Setting(
    name="admin-socket",
    parameter="admin_socket",
    type=FILE,
    default=_DEFAULTS.admin_socket,
    help="The socket of the operator's commands.  [default: admin.sock in --run-dir]",
)

RUN_DIR: Final = Setting(
    name="run-dir",
    parameter="run_dir",
    type=DIRECTORY,
    default=_DEFAULTS.run_dir,
    help="Directory of the staging namespaces; may be lost at a reboot.",
)

SETTINGS: Final = (
    SOCKET,
    DRIVER,
    ADMIN_SOCKET,
    Setting(
        name="listen",
        parameter="listen",
        type=ListenAddress(),
        multiple=True,
        default=_DEFAULTS.listen,
        help="Listen at tcp://LOOPBACK:PORT or https://ADDRESS:PORT, besides the socket. Repeatable.",
    ),
    Setting(
        name="metrics-listen",
        parameter="metrics_listen",
        type=MetricsAddress(),
        default=_DEFAULTS.metrics_listen,
        help="Serve metrics at http://ADDRESS:PORT/metrics, to everyone who can connect.",
    ),
    Setting(
        name="tls-cert",
        parameter="tls_cert",
        type=FILE,
        default=_DEFAULTS.tls_cert,
        help="Certificate for --listen https://….",
    ),
    Setting(
        name="tls-key",
        parameter="tls_key",
        type=FILE,
        default=_DEFAULTS.tls_key,
        help="Private key of that certificate.",
    ),
    Setting(
        name="tls-ca",
        parameter="tls_ca",
        type=FILE,
        default=_DEFAULTS.tls_ca,
        help="Certificate of the authority that must have signed a client's certificate.",
    ),
    Setting(
        name="cni-conf-dir",
        parameter="cni_conf_dirs",
        type=DIRECTORY,
        multiple=True,
        default=_DEFAULTS.cni_conf_dirs,
        help="Directory of CNI network configurations. Repeatable; the first that has a name wins.",
    ),
    Setting(
        name="cni-bin-dir",
        parameter="cni_bin_dirs",
        type=DIRECTORY,
        multiple=True,
        default=_DEFAULTS.cni_bin_dirs,
        help="Directory of CNI plugins. Repeatable; the first that has a plugin wins.",
    ),
    STATE_DIR,
    RUN_DIR,
    DOCKER_HOST,
    Setting(
        name="engine-timeout",
        parameter="engine_timeout_s",
        type=SECONDS,
        default=_DEFAULTS.engine_timeout_s,
        help="Time limit of a query to the Docker Engine during a call, in seconds.",
    ),
    Setting(
        name="engine-background-timeout",
        parameter="engine_background_timeout_s",
        type=SECONDS,
        default=_DEFAULTS.engine_background_timeout_s,
        help="Time limit of a query to the Docker Engine in the background, in seconds.",
    ),
    Setting(
        name="plugin-timeout",
        parameter="plugin_timeout_s",
        type=SECONDS,
        default=_DEFAULTS.plugin_timeout_s,
        help="Time limit of one execution of a plugin, in seconds.",
    ),
    Setting(
        name="reconcile-interval",
        parameter="reconcile_interval_s",
        type=SECONDS,
        default=_DEFAULTS.reconcile_interval_s,
        help="Seconds between two comparisons of the state with Docker and the kernel.",
    ),
    Setting(
        name="boot-recovery-timeout",
        parameter="boot_recovery_timeout_s",
        type=SECONDS,
        default=_DEFAULTS.boot_recovery_timeout_s,
        help="Seconds that Docker waits at most while the endpoints from before the reboot are torn down.",
    ),
    Setting(
        name="drain-timeout",
        parameter="drain_timeout_s",
        type=SECONDS,
        default=_DEFAULTS.drain_timeout_s,
        help="Seconds that SIGTERM waits for running calls and teardowns.",
    ),
    ATTACH,
    Setting(
        name="networks",
        parameter="networks",
        type=NETWORK,
        multiple=True,
        default=_DEFAULTS.networks,
        help="A Docker network to create if it is missing: NAME or NAME=CONFIGURATION. Repeatable; more in the file.",
    ),
    Setting(
        name="allow-inline",
        parameter="allow_inline",
        type=click.BOOL,
        default=_DEFAULTS.allow_inline,
        help="Whether docker network create may pass a CNI configuration itself (-o cni.conflist=JSON).",
    ),
    Setting(
        name="cni-gc",
        parameter="cni_gc",
        type=click.BOOL,
        default=_DEFAULTS.cni_gc,
        help="Whether to run the plugins' GC: only if no other runtime uses networks of the same names.",
    ),
    Setting(
        name="log-level",
        parameter="log_level",
        type=click.Choice(LogLevel, case_sensitive=False),
        default=LogLevel.INFO.value,
        help="The lowest level that is logged.",
    ),
    Setting(
        name="log-format",
        parameter="log_format",
        type=click.Choice(LogFormat, case_sensitive=False),
        default=LogFormat.AUTO.value,
        help="auto is text on a terminal and JSON elsewhere.",
    ),
)

DIRECTORIES: Final = tuple(
    setting for setting in SETTINGS if setting.name in {"cni-conf-dir", "cni-bin-dir", "run-dir"}
)
"""The directories of configurations, plugins and namespaces."""
