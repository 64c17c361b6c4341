# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The keeper of one lab: starts it, and removes all of it when the owner closes it or dies.

It is a separate process in its own session, because the test process may be killed together with its process group. It
imports nothing of the package, so that `python -I -S keeper.py NAME OWNER_PID [DIRECTORY…]` starts in a few
milliseconds.

    stdin   a pipe that the owner holds open: its end is the order to clean up
    stdout  the process ID of the lab's init; then init's own line, when it is ready
    exit    0 if nothing is left, otherwise what is left is on stderr
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

__all__: list[str] = []

CLONE_NEWPID: Final = 0x20000000  # include/uapi/linux/sched.h; os.unshare comes with Python 3.12
LIMIT_S: Final = 10.0  # for the kernel to end all processes, and then to empty their cgroups: normally some 20 ms


def main() -> int:
    """Keep one lab from its start to its end; return the exit status."""
    name, owner_pid, *directories = sys.argv[1:]
    if os.getppid() != int(owner_pid):
        return 0  # the owner died before we began
    owner = os.pidfd_open(int(owner_pid))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWPID) != 0:  # of our children: the first one is process 1 of the lab
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWPID)")
    unshare = ["unshare", "--net", "--mount", "--uts", "--ipc", "--mount-proc"]
    script = [sys.executable, "-I", "-S", str(Path(__file__).with_name("init.py")), name, *directories]
    # While this process lives, init's stdin stays open; if it is killed, init's stdin ends, and the lab with it.
    init = subprocess.Popen([*unshare, *script], stdin=subprocess.PIPE)
    try:
        print(init.pid, flush=True)
        ends = select.poll()
        # The pipe alone is not enough: a child of the owner would hold it open after the owner's death.
        for end in (sys.stdin.fileno(), owner, os.pidfd_open(init.pid)):
            ends.register(end, select.POLLIN | select.POLLHUP)
        ends.poll()
    finally:
        init.kill()  # with process 1 the kernel kills all processes of the lab, and removes its namespaces and mounts
        left = [str(path) for path in remove_cgroups(name)]
        try:
            init.wait(LIMIT_S)
        except subprocess.TimeoutExpired:  # the owner does not reap a process that it started inside
            left.append(f"process {init.pid}")
    if left:
        print("\n".join(left), file=sys.stderr)
    return 1 if left else 0


def remove_cgroups(name: str) -> list[Path]:
    """Remove the control groups of the lab's containers, in every hierarchy (v1, v2 or both); return those left.

    They are the one thing that namespaces do not contain: dockerd makes them as `/NAME/<container ID>`. A group whose
    last process has just died stays busy for a moment.
    """
    deadline = time.monotonic() + LIMIT_S
    while True:
        left = [path for mount in cgroup_mounts() for path in directories_below(mount / name)]
        for path in left:
            with contextlib.suppress(OSError):  # busy, or gone already
                path.rmdir()
        left = [path for path in left if path.exists()]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.01)


def cgroup_mounts() -> list[Path]:
    """Return the mounts of control groups (proc_pid_mountinfo(5): the type is the first field after the dash)."""
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        if after.startswith(("cgroup ", "cgroup2 ")):
            mounts.append(Path(before.split()[4]))
    return mounts


def directories_below(top: Path) -> list[Path]:
    """Return `top` and every directory below it, children before their parents; nothing if `top` does not exist."""
    return [Path(directory) for directory, _, _ in os.walk(top, topdown=False)]


if __name__ == "__main__":
    sys.exit(main())
