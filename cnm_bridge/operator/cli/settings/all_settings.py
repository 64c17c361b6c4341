# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All settings of the daemon that an operator can change, with their help."""

from typing import Final

import click

from cnm_bridge.operator.cli.settings.setting import Setting
from cnm_bridge.operator.cli.settings.types import Checked, check_engine_address, check_metrics_address

ADMIN_SOCKET: Final = Setting.of(
    "admin_socket", "The socket of the operator's commands.  [default: admin.sock in --run-dir]"
)
STATE_DIR: Final = Setting.of("state_dir", "Directory of the state; must survive a reboot.")
RUN_DIR: Final = Setting.of("run_dir", "Directory of the staging namespaces; may be lost at a reboot.")
DOCKER_HOST: Final = Setting.of(
    "docker_host",
    "Address of the Docker Engine API.",
    kind=Checked("url", check_engine_address),
    fallback="DOCKER_HOST",
)
_CONF_DIRS: Final = Setting.of(
    "cni_conf_dirs", "Directory of CNI network configurations. Repeatable; the first that has a name wins."
)
_BIN_DIRS: Final = Setting.of("cni_bin_dirs", "Directory of CNI plugins. Repeatable; the first that has a plugin wins.")

SETTINGS: Final = (
    Setting.of("socket", "The plugin socket; its file name is the name of the driver in Docker."),
    Setting.of(
        "driver", "The name of the driver in Docker, if it is not the file name of --socket: that of a managed plugin."
    ),
    ADMIN_SOCKET,
    Setting.of(
        "metrics_listen",
        "Serve metrics at http://ADDRESS:PORT/metrics, to everyone who can connect.",
        kind=Checked("address:port", check_metrics_address),
    ),
    _CONF_DIRS,
    _BIN_DIRS,
    STATE_DIR,
    RUN_DIR,
    DOCKER_HOST,
    Setting.of("engine_timeout_s", "Time limit of a query to the Docker Engine during a call, in seconds."),
    Setting.of(
        "engine_background_timeout_s", "Time limit of a query to the Docker Engine in the background, in seconds."
    ),
    Setting.of("plugin_timeout_s", "Time limit of one execution of a plugin, in seconds."),
    Setting.of("reconcile_interval_s", "Seconds between two comparisons of the state with Docker and the kernel."),
    Setting.of(
        "boot_recovery_timeout_s",
        "Seconds that Docker waits at most while the endpoints from before the reboot are torn down.",
    ),
    Setting.of("drain_timeout_s", "Seconds that SIGTERM waits for running calls and teardowns."),
    Setting.of(
        "attach", "How to attach endpoints for which cni.attach is not set; auto loses nothing, fast is faster."
    ),
    Setting.of(
        "scope",
        "local, or global in an instance of its own for swarms whose manager gives all addresses.",
    ),
    Setting.of(
        "allow_inline",
        "Whether docker network create may pass a CNI configuration itself (-o cni.conflist=JSON).",
    ),
    Setting.of(
        "cni_arg_names",
        "Name of an argument of plugins (cni.args.NAME), which Docker's command line puts in lower case. Repeatable.",
        kind=click.STRING,
    ),
    Setting.of("log_level", "The lowest level that is logged."),
    Setting.of("log_format", "auto is text on a terminal and JSON elsewhere."),
)
