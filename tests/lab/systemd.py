# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""systemd as process 1 of a lab, for the project's units; the machine's systemd is not affected.

It has a PID namespace of its own within the lab's, and a control group that the keeper removes with the lab.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.lab.lab import Lab
from tests.lab.process import Process
from tests.lab.programs import SYSTEMD, require_systemd
from tests.lab.waiting import wait_until

_UNITS: Final = "/run/systemd/system"
_TARGET: Final = "lab.target"
_REPOSITORY: Final = Path(__file__).parents[2]
_LOG: Final = "/run/lab/units.log"
_SOURCES: Final = _REPOSITORY / "docker/systemd"

_SCRIPT: Final = r"""
set -eu
name=$1; shift
trees=
while read -r _ _ _ _ point rest; do
    case "$rest" in
    *' - cgroup2 '*) trees="$trees $point:cgroup2" ;;
    *' - cgroup '*name=systemd*) trees="$trees $point:cgroup" ;;
    esac
done </proc/self/mountinfo
for tree in $trees; do
    mkdir -p "${tree%:*}/$name"
    echo 0 >"${tree%:*}/$name/cgroup.procs"
done
exec unshare --cgroup --pid --mount --propagation private --fork --kill-child sh -eu -c '
    mount --no-mtab -t proc proc /proc
    mount --no-mtab --make-rshared /
    for tree in '"$trees"'; do
        umount --no-mtab --lazy "${tree%:*}"
        case "$tree" in
        *:cgroup) mount --no-mtab -t cgroup -o none,name=systemd,xattr lab "${tree%:*}" ;;
        *) mount --no-mtab -t cgroup2 lab "${tree%:*}" ;;
        esac
    done
    exec "$@"' sh "$@"
"""
"""Moves to a control group of the lab, and starts a program as process 1 that sees nothing above that group."""


class Systemd:
    """systemd of a lab, with the project's units in it; the daemon and dockerd, started later, see each other.

    Args:
        lab: A lab in which nothing runs yet. From now on all that it starts is started beside systemd.

    Raises:
        LabError: systemd is not installed, or does not start.
    """

    def __init__(self, lab: Lab) -> None:
        require_systemd()
        self._lab = lab
        lab.write(f"{_UNITS}/{_TARGET}", "[Unit]\nDefaultDependencies=no\nAllowIsolate=yes\n")
        self._install()
        self.process: Process = lab.spawn(
            *("sh", "-c", _SCRIPT, "systemd", lab.namespaces.name, SYSTEMD, "--system", f"--unit={_TARGET}"),
            *("--log-target=console", "--show-status=no"),
            env={"container": "lab"},
        )
        self.process.wait_ready(lambda: lab.path("/run/systemd/private").is_socket(), 10.0)
        lab.namespaces.enter(self._init_pid())
        wait_until(lambda: self.state("is-system-running") == "running", "systemd")

    def control(self, *command: str) -> str:
        """Run systemctl and return its output.

        Raises:
            CommandFailed: It failed.
        """
        return self._lab.run("systemctl", *command).stdout.strip()

    def state(self, *command: str) -> str:
        """Run systemctl for a state, for which the exit status may not be 0; return its output."""
        return self._lab.run("systemctl", *command, check=False).stdout.strip()

    def show(self, unit: str, *properties: str) -> Mapping[str, str]:
        """Return properties of a unit, as text."""
        lines = self.control("show", f"--property={','.join(properties)}", unit).splitlines()
        return dict(line.split("=", 1) for line in lines)

    def log(self) -> str:
        """Return what the daemons have logged so far."""
        return self._lab.read(_LOG)

    def _install(self) -> None:
        """Install the project's units, with another command to start, and without dependencies on other units."""
        for source in sorted(_SOURCES.iterdir()):
            self._lab.write(f"{_UNITS}/{source.name}", source.read_text("utf-8"))
            self._lab.write(f"{_UNITS}/{source.name}.d/lab.conf", "[Unit]\nDefaultDependencies=no\n")
        start = f"{sys.executable} -m cnm_bridge serve"
        self._lab.write(
            f"{_UNITS}/cni-bridge.service.d/start.conf",
            f"[Service]\nExecStart=\nExecStart={start}\nWorkingDirectory={Path.cwd()}\nStandardError=append:{_LOG}\n",
        )

    def _init_pid(self) -> int:
        """Return the machine's process ID of systemd: the only child of `unshare`, which is our own child."""
        found: list[int] = []

        def is_there() -> bool:
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text("ascii").split()
            found[:] = map(int, children)
            return bool(found)

        wait_until(is_there, "process 1 of systemd")
        return found[0]
