# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A minimal Debian or Ubuntu of its own with systemd as process 1 and a dockerd, in a container of systemd-nspawn.

Its network, mounts, processes and control groups are its own; the machine's Docker and systemd are not touched. Root
directories are made once by mmdebstrap, and kept as archives in the cache that `tests.lab.debian` describes.
"""

import hashlib
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Self

from tests.lab.debian import cache_directory, find_archive, run_program
from tests.lab.waiting import wait_until

_CGROUPS: Final = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup/systemd"), Path("/sys/fs/cgroup"))
_ENVIRONMENT: Final = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}

_BOOT: Final = """
for tree in $1; do
    mkdir "$tree"
    echo 0 >"$tree/cgroup.procs"
done
exec unshare --mount --propagation private sh -euc '
    mkdir -p /run/systemd/nspawn
    mount -t tmpfs nspawn /run/systemd/nspawn
    exec systemd-nspawn --quiet --register=no --keep-unit --private-network --capability=all --console=passive \
        --timezone=off --system-call-filter="add_key keyctl bpf perf_event_open @mount @module" \
        --machine="$1" --directory="$2" --boot
' sh "$2" "$3"
"""
"""Moves to control groups of the machine, and boots it; the files of nspawn itself are on a temporary file system.

Its time zone is its own: nspawn would mount that of the machine, which the package tzdata could not replace.
"""


def fetch_root(suite: str, purpose: str, packages: Sequence[str]) -> Path:
    """Return an archive of a root directory of a suite with packages, made at the first use.

    Raises:
        FetchError: It cannot be made.
    """
    digest = hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:8]
    archive = cache_directory("machines") / f"{suite}-{purpose}-{digest}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        unfinished = archive.with_name(f".{uuid.uuid4().hex}.tar")
        try:
            source = find_archive(suite)
            options = ["--variant=apt", f"--include={','.join(packages)}", f"--components={source.components}"]
            options += [f"--keyring={source.keyring}"] if source.keyring else []
            # apt's own user may not enter a home directory, where the keys are.
            options += ['--aptopt=APT::Sandbox::User "root"']
            run_program("mmdebstrap", *options, suite, str(unfinished), source.mirror)
            unfinished.replace(archive)
        finally:
            unfinished.unlink(missing_ok=True)
    return archive


class Machine:
    """One machine; its files are in a directory, and are kept over a reboot.

    Args:
        directory: A directory that does not exist yet.
        archive: Its root directory; see `fetch_root`.
    """

    def __init__(self, directory: Path, archive: Path) -> None:
        self.root = directory
        self._name = f"cni-bridge-machine-{uuid.uuid4().hex[:8]}"
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._console = directory.parent / f"{directory.name}.console"
        directory.mkdir()
        run_program("tar", "--extract", "--file", str(archive), "--directory", str(directory))

    def __enter__(self) -> Self:
        self.boot()
        return self

    def __exit__(self, *_: object) -> None:
        if self._nspawn is not None:
            # Not nspawn, which would leave the machine running; it ends with process 1.
            os.kill(self._init or self._nspawn.pid, signal.SIGKILL)
            self._end()
        shutil.rmtree(self.root)

    def boot(self) -> None:
        """Start it, and wait until all its units have started."""
        trees = " ".join(str(tree / self._name) for tree in self._trees())
        with self._console.open("ab") as console:
            self._nspawn = subprocess.Popen(
                ("sh", "-euc", _BOOT, "sh", trees, self._name, str(self.root)),
                env={**_ENVIRONMENT, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1", "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        wait_until(self._find_init, f"process 1 of {self._name}")
        wait_until(lambda: self.path("/run/dbus/system_bus_socket").is_socket(), f"D-Bus of {self._name}", 30.0)
        self.run("systemctl", "is-system-running", "--wait", check=False)

    def reboot(self) -> None:
        """Shut it down in the ordinary way, and start it again."""
        self.run("systemctl", "reboot", check=False)
        self._end()
        self.boot()

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command in it; both outputs are in `stdout`.

        Raises:
            CalledProcessError: It failed, unless `check` is false; pytest shows the output.
        """
        enter = ("nsenter", "--target", str(self._init), "--all", "--root", "--wd")
        done = subprocess.run(
            (*enter, *command),
            env={**_ENVIRONMENT, "DEBIAN_FRONTEND": "noninteractive"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}")
        return done

    def path(self, path: str) -> Path:
        """Return a path of it as a path of the machine that runs the test, mounts included."""
        return Path(f"/proc/{self._init}/root{path}")

    def _find_init(self) -> bool:
        assert self._nspawn is not None
        if self._nspawn.poll() is not None:
            raise AssertionError(f"{self._name} did not start: {self._console.read_text('utf-8')}")
        pid = self._nspawn.pid
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()):
            with suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text("ascii").strip() == "systemd":
                    self._init = child
                    return True
        return False

    def _end(self) -> None:
        assert self._nspawn is not None
        self._nspawn.wait(120.0)
        self._nspawn, self._init = None, 0
        for tree in self._trees():
            for directory, _, _ in os.walk(tree / self._name, topdown=False):
                wait_until(partial(_remove, Path(directory)), f"the end of control group {directory}")

    @staticmethod
    def _trees() -> Sequence[Path]:
        """Return the control group trees that systemd uses."""
        found = [tree for tree in _CGROUPS[:2] if (tree / "cgroup.procs").exists()]
        return found or _CGROUPS[2:]


def _remove(directory: Path) -> bool:
    with suppress(OSError):
        directory.rmdir()
    return not directory.exists()
