# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Process 1 of a lab: gives the lab directories of its own where needed, then reaps orphans until the end.

`python -I -S init.py NAME [DIRECTORY…]`, started by the keeper in new namespaces (net, mount, uts, ipc, pid) with a
new /proc. Prints `ready` when the lab can be used. Ends when its stdin ends, and every process of the lab with it.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Final

__all__: list[str] = []

SCRATCH: Final = Path("/run/lab")
# The lab reads the machine's files here; what it writes stays in the lab.
COPIED: Final = ("/etc", "/opt", "/var/lib")
# Empty in the lab, whatever the machine has. /var/lib/docker needs a file system that can be overlaid again.
EMPTY: Final = (
    "/etc/cni",
    "/etc/cni-bridge",
    "/etc/docker",
    "/opt/cni",
    "/var/lib/cni",
    "/var/lib/cni-bridge",
    "/var/lib/containerd",
    "/var/lib/docker",
)


def main() -> None:
    """Set the lab up and be its init."""
    name, *kept = sys.argv[1:]
    socket.sethostname(name)
    unmount_the_machines_mounts()
    mount("-t", "tmpfs", "-o", "mode=755", "lab", "/run")
    SCRATCH.mkdir()
    Path("/run/lock").mkdir(mode=0o1777)  # /var/lock points to it
    copy_on_write([Path(path) for path in kept])
    for directory in EMPTY:
        Path(directory).mkdir(parents=True, exist_ok=True)
        mode = 700 if directory == "/var/lib/cni-bridge" else 755  # as the daemon makes it
        mount("-t", "tmpfs", "-o", f"mode={mode}", "lab", directory)
    Path("/opt/cni/bin").mkdir()
    own_sysfs()
    # One setting of dockerd's is the machine's and not a namespace's: it raises the limit of root's keys.
    mount("--bind", "/proc/sys/kernel/keys", "/proc/sys/kernel/keys")
    mount("-o", "remount,bind,ro", "/proc/sys/kernel/keys")
    mount("--make-rshared", "/")  # as systemd does on a real machine; the mount peers are within this namespace
    command("ip", "link", "set", "lo", "up")
    # A new network namespace copies IPv4 sysctls from the machine, which may be configured as a router.
    Path("/proc/sys/net/ipv4/ip_forward").write_text("0", encoding="ascii")
    signal.signal(signal.SIGCHLD, reap)
    print("ready", flush=True)
    sys.stdin.buffer.read()


def unmount_the_machines_mounts() -> None:
    """Unmount our copies of the machine's mounts below the lab's own directories: they would pin its namespaces."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()]
    own = tuple(f"{directory}/" for directory in ("/run", *EMPTY))
    for point in reversed([point for point in points if f"{point}/".startswith(own)]):
        with contextlib.suppress(subprocess.CalledProcessError):  # it was unmounted with one below it
            command("umount", "--lazy", point.replace("\\040", " "))


def copy_on_write(kept: list[Path]) -> None:
    """Overlay the directories in `COPIED`, except those in `kept`, in which writes reach the machine."""
    binds = [path for path in kept if any(path.is_relative_to(top) for top in COPIED)]
    for number, path in enumerate(binds):
        (SCRATCH / f"kept-{number}").mkdir()
        mount("--rbind", str(path), str(SCRATCH / f"kept-{number}"))
    for top in COPIED:
        layers = SCRATCH / f"overlay{top.replace('/', '-')}"
        (layers / "upper").mkdir(parents=True)
        (layers / "work").mkdir()
        options = f"lowerdir={top},upperdir={layers / 'upper'},workdir={layers / 'work'}"
        mount("-t", "overlay", "-o", options, "lab", top)
    for number, path in enumerate(binds):
        mount("--rbind", str(SCRATCH / f"kept-{number}"), str(path))


def own_sysfs() -> None:
    """Mount a sysfs that shows this network namespace's links, with the machine's control groups in it."""
    fresh = SCRATCH / "sys"
    fresh.mkdir()
    mount("-t", "sysfs", "lab", str(fresh))
    mount("--rbind", "/sys/fs/cgroup", str(fresh / "fs/cgroup"))
    command("umount", "--recursive", "--lazy", "/sys")  # every mount here makes the start of each container slower
    mount("--move", str(fresh), "/sys")


def mount(*arguments: str) -> None:
    """Run the mount command, without a record in its table."""
    command("mount", "--no-mtab", *arguments)


def command(*argv: str) -> None:
    """Run a command; its error message goes to our stderr."""
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def reap(*_: object) -> None:
    """Take the exit status of every orphan that has ended; no other process does."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


if __name__ == "__main__":
    main()
