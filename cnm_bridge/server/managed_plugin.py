# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Starts the daemon of a managed plugin: its libraries are the plugin's, everything else is the host's.

Docker gives a managed plugin a mount namespace of its own. CNI plugins, their configurations, iptables, reservations,
sandboxes and the engine's socket are in the host's. So this program opens the plugin socket where Docker expects it, in
the plugin's namespace, enters the mount namespace of the host, and starts the daemon there. Interpreter and libraries
are then reached through a descriptor of the plugin's root directory, which stays open. What the daemon executes is the
host's, and inherits neither the descriptor nor a variable that leads to these libraries.

It runs before the daemon's own modules can be found, with the standard library only.
"""

import ctypes
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_SOCKET: Final = Path("/run/docker/plugins/cni-bridge.sock")
_ROOT_FD: Final = 1000
"""Above the descriptors that systemd's protocol passes, which begin at 3."""
_HOST: Final = "/proc/1/ns/mnt"
_NEW_MOUNTS: Final = 0x00020000  # CLONE_NEWNS, linux/sched.h
_BACKLOG: Final = 1024

_RUN: Final = (
    "import sys; sys.path[:0] = [{libraries!r}]; "
    "from cnm_bridge.operator.cli.main import main; main(prog_name='cni-bridge')"
)


def main(arguments: Sequence[str]) -> None:
    """Replace this process by the daemon.

    Raises:
        OSError: The socket cannot be opened, or the host's mount namespace cannot be entered.
    """
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _SOCKET.unlink(missing_ok=True)  # of the previous run; Docker starts a plugin once
    os.umask(0o177)
    listening.bind(str(_SOCKET))
    listening.listen(_BACKLOG)
    os.umask(0o022)
    command = _command(arguments)
    os.dup2(os.open("/", os.O_RDONLY | os.O_DIRECTORY), _ROOT_FD)
    host = os.open(_HOST, os.O_RDONLY)
    if listening.fileno() != 3:  # noqa: PLR2004  # SD_LISTEN_FDS_START
        os.dup2(listening.fileno(), 3)
    else:
        os.set_inheritable(3, True)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(host, _NEW_MOUNTS) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), _HOST)
    os.close(host)
    environment = {**os.environ, "LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1", "LISTEN_FDNAMES": "plugin"}
    os.execve(command[0], command, environment)  # noqa: S606


def _command(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the command that starts the daemon from the host's mount namespace."""
    root = f"/proc/self/fd/{_ROOT_FD}"
    interpreter = Path(sys.executable).resolve()
    loader = next(Path("/lib").glob("*-linux-gnu*/ld-linux-*.so.*"))
    native = f"{root}{loader.parent}:{root}/usr{loader.parent}"
    libraries = next(path for path in sys.path if path.endswith("/site-packages"))
    scope = os.environ.get("CNI_BRIDGE_SCOPE") or "local"
    name = f"cni-bridge-{scope}" if scope != "local" else "cni-bridge-plugin"  # one of each scope can run on a host
    return (
        *(f"{root}{loader}", "--inhibit-cache", "--library-path", native),
        *(f"{root}{interpreter}", "-I", "-c", _RUN.format(libraries=f"{root}{libraries}"), "serve"),
        *("--state-dir", f"/var/lib/{name}", "--run-dir", f"/run/{name}"),
        *arguments,
    )


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except OSError as exc:
        sys.exit(f"cni-bridge: the plugin cannot start: {exc}; does it have all privileges of its config.json?")
