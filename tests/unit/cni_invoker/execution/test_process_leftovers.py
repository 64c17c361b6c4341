# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A program leaves no process, no descriptor and no garbage, whatever happens to it or to its caller."""

import math
import os
import resource
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from cni_invoker import waiting
from tests.unit.cni_invoker.execution.programs import LONG_S, is_reaped, run, script, wait_until
from tests.unit.cni_invoker.processes import is_alive


def open_descriptors() -> Counter[str]:
    """Return what the descriptors of this process lead to, and how many lead there."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(FileNotFoundError):  # that of the directory itself
            found[os.readlink(f"/proc/self/fd/{name}")] += 1  # noqa: PTH115
    return found


def has_children() -> bool:
    """Return whether this process has a child, or a zombie."""
    with suppress(ChildProcessError):
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        return True
    return False


@contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Leave this process a number of descriptors that it can open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_an_error_of_the_caller_ends_the_program(tmp_path: Path) -> None:
    """It is raised; the program is killed and reaped, and no descriptor stays open."""
    before, pids = open_descriptors(), []

    def fail(pid: int) -> None:
        pids.append(pid)
        raise KeyError("record")

    with pytest.raises(KeyError, match="record"):
        await run(script(tmp_path, f"sleep {LONG_S}"), on_started=fail)
    assert is_reaped(pids[0])
    assert open_descriptors() == before


@pytest.mark.parametrize("free", range(12))
async def test_a_process_with_few_descriptors(tmp_path: Path, free: int) -> None:
    """Either the program runs, or the kernel's error is raised, and neither a process nor a descriptor is left."""
    program = script(tmp_path, "echo result")
    before = open_descriptors()
    with free_descriptors(free):
        for _ in range(3):
            with suppress(OSError):
                assert (await run(program)).stdout == b"result\n"
    assert open_descriptors() == before
    await wait_until(lambda: not has_children())


async def test_a_program_that_even_sigkill_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no status, the call does not wait for it, and it is reaped when it ends."""
    pids: list[int] = []
    before = open_descriptors()
    program = script(tmp_path, f"while ! test -e {tmp_path}/end; do sleep 0.01; done")
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda *_: None)  # as if it hung in the kernel
        ended = await run(program, timeout_s=0.1, grace_s=0.1, on_started=pids.append)
    assert (ended.status, ended.timed_out) == (None, True)
    assert is_alive(pids[0])
    assert open_descriptors() == before
    (tmp_path / "end").touch()
    await wait_until(lambda: is_reaped(pids[0]))


async def test_another_reader_of_the_output_does_not_delay_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that opens its own output may read what it has written, just before this process does."""
    read = os.read
    taken: list[bytes] = []

    def read_after_another(descriptor: int, size: int) -> bytes:
        data = read(descriptor, size)
        if not data or taken:
            return data
        taken.append(data)
        return read(descriptor, size)

    monkeypatch.setattr(os, "read", read_after_another)
    ended = await run(script(tmp_path, "echo first", "exec sleep 5"), timeout_s=0.3)
    assert taken == [b"first\n"]
    assert ended.timed_out


async def test_a_program_without_a_deadline(tmp_path: Path) -> None:
    """poll(2) itself does not accept an infinite time."""
    assert (await run(script(tmp_path, "echo result"), timeout_s=math.inf)).stdout == b"result\n"


async def test_a_closed_coroutine_stops_its_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if the thread begins later, when the coroutine's own descriptors are closed."""
    before = open_descriptors()
    threads: list[tuple[Callable[..., None], tuple[object, ...]]] = []
    pids: list[int] = []
    monkeypatch.setattr(waiting, "start_new_thread", lambda work, arguments: threads.append((work, arguments)))
    coroutine = run(script(tmp_path, f"sleep {LONG_S}"), on_started=pids.append)
    coroutine.send(None)
    coroutine.close()
    work, arguments = threads.pop()
    work(*arguments)
    assert is_reaped(pids[0])
    del work, arguments
    assert open_descriptors() == before
