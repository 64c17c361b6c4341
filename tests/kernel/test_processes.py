# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The first process of a container is found by its network namespace."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cnm_bridge.core.errors import NamespaceMissing
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace, living_process

# A process with a second thread and a child, as `runc init` is before it executes the user's program.
PROGRAM = """
import subprocess, sys, threading
child = subprocess.Popen(["sleep", "60"])
threading.Thread(target=sys.stdin.read).start()
print("ready", flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


@contextmanager
def first_process(sandbox: Namespace) -> Iterator[int]:
    """Run the program in a sandbox for the length of the block."""
    inside = ("nsenter", f"--net={sandbox.path}", sys.executable, "-c", PROGRAM)
    command = ("unshare", "--pid", "--fork", *inside)  # like a container runtime, it stays outside
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        finally:
            process.communicate()


def start(*prefix: str) -> subprocess.Popen[bytes]:
    """Start a process that ends with its PID namespace."""
    process = subprocess.Popen([*prefix, "sh", "-c", "echo up; exec sleep 60"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


async def test_the_oldest_process_is_found_not_a_thread(sandbox: Namespace) -> None:
    """The latest IDs belong to a child and to a thread, which may end before the container does."""
    kernel = Kernel(reply_limit_s=5.0)
    with first_process(sandbox) as pid:
        found = await kernel.find_latest_first_process(sandbox.path)
    assert found is not None
    assert found.pid == pid
    assert kernel.find_start(found.pid) is None  # it has ended
    assert "/" in found.cgroup


async def test_a_container_that_shares_the_sandbox(sandbox: Namespace) -> None:
    """Its process is the latest, and comes last among all."""
    kernel = Kernel(reply_limit_s=5.0)
    with first_process(sandbox) as owner, first_process(sandbox) as partner:
        latest = await kernel.find_latest_first_process(sandbox.path)
        everyone = await kernel.find_first_processes(sandbox.path)
    assert latest is not None
    assert latest.pid == partner
    assert [process.pid for process in everyone] == [owner, partner]


async def test_a_pid_namespace_that_a_container_makes(sandbox: Namespace) -> None:
    """Its first process is not the container's, whether the first process of the container made it or another one."""
    kernel = Kernel(reply_limit_s=5.0)
    unshare = ("unshare", "--pid", "--fork", "--kill-child")
    with first_process(sandbox) as owner, living_process("nsenter", f"--net={sandbox.path}", *unshare):
        nested = start("nsenter", f"--target={owner}", "--net", "--pid", *unshare)
        latest = await kernel.find_latest_first_process(sandbox.path)
        everyone = await kernel.find_first_processes(sandbox.path)
    nested.communicate()  # it has ended with the first process
    assert latest is not None
    assert [latest.pid, *(process.pid for process in everyone)] == [owner, owner]


async def test_a_kernel_that_does_not_tell_the_last_process(sandbox: Namespace, tmp_path: Path) -> None:
    """It was built without CONFIG_CHECKPOINT_RESTORE: all processes are looked at."""
    with first_process(sandbox) as pid:
        for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - in a coroutine
            (tmp_path / name).symlink_to(f"/proc/{name}")
        found = await Kernel(reply_limit_s=5.0, processes=tmp_path).find_latest_first_process(sandbox.path)
    assert found is not None
    assert found.pid == pid


async def test_a_process_that_is_not_the_first(sandbox: Namespace) -> None:
    """A process of the host's PID namespace may be a health check, and ends before the container."""
    with sandbox.living():
        assert await Kernel(reply_limit_s=5.0).find_latest_first_process(sandbox.path) is None


async def test_a_sandbox_without_a_process(sandbox: Namespace) -> None:
    """Its container has ended, or is being created by an engine that starts no process first."""
    assert await Kernel(reply_limit_s=5.0).find_latest_first_process(sandbox.path) is None


async def test_an_inhabited_sandbox(sandbox: Namespace, tmp_path: Path) -> None:
    """Any process counts, whether or not it is the first one of a container."""
    kernel = Kernel(reply_limit_s=5.0, processes=tmp_path)  # a machine need not show all of its own
    with sandbox.living() as pid:
        assert not await kernel.is_inhabited(sandbox.path)
        (tmp_path / str(pid)).symlink_to(f"/proc/{pid}")
        assert await kernel.is_inhabited(sandbox.path)
    assert not await kernel.is_inhabited(sandbox.path)


async def test_a_missing_sandbox(tmp_path: Path) -> None:
    """It is an error, because it is unknown whether the container has processes."""
    with pytest.raises(NamespaceMissing):
        await Kernel(reply_limit_s=5.0).find_latest_first_process(tmp_path / "none")
    with pytest.raises(NamespaceMissing):
        await Kernel(reply_limit_s=5.0).is_inhabited(tmp_path / "none")
