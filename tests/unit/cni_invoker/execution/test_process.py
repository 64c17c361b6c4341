# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Running one program: input, output, end, and nothing left of it however it behaves."""

import asyncio
import os
import resource
import signal
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from cni_invoker.execution.process import Ended, run_program

ENVIRONMENT = {"PATH": os.environ["PATH"], "GREETING": "hello"}
GRACE_S = 0.3
DEADLINE_S = 1.0
"""A shell reads its script in less, also on a busy machine."""


def script(directory: Path, *lines: str) -> Path:
    """Write a shell script."""
    path = directory / "program"
    path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    path.chmod(0o755)
    return path


async def run(
    program: Path,
    stdin: bytes = b"",
    *,
    timeout_s: float = 10.0,
    grace_s: float = GRACE_S,
    stdout_bytes: int = 1000,
    stderr_bytes: int = 1000,
) -> Ended:
    """Run a program under small limits."""
    return await run_program(
        program,
        ENVIRONMENT,
        stdin,
        deadline=asyncio.get_running_loop().time() + timeout_s,
        grace_s=grace_s,
        stdout_bytes=stdout_bytes,
        stderr_bytes=stderr_bytes,
    )


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_reaped(pid: int) -> bool:
    """Return whether not even a zombie is left of a process."""
    return not Path(f"/proc/{pid}").exists()


def written_pid(file: Path) -> int:
    """Return the process ID that a program has written, 0 if it has not done so yet."""
    text = file.read_text() if file.exists() else ""
    return int(text) if text.endswith("\n") else 0


async def wait_until(happened: Callable[[], bool]) -> None:
    """Wait for something that another process does."""
    async with asyncio.timeout(5):
        while not happened():  # noqa: ASYNC110  # nothing tells us
            await asyncio.sleep(0.005)


async def wait_for_pid(file: Path) -> int:
    """Wait until a program has written a process ID."""
    await wait_until(lambda: written_pid(file) != 0)
    return written_pid(file)


async def wait_until_gone(pid: int) -> None:
    """Wait until a process does not run any more."""
    await wait_until(lambda: not is_alive(pid))


async def test_input_output_and_status(tmp_path: Path) -> None:
    """A program reads what it is given, in the environment it is given, and both its outputs are returned."""
    program = script(tmp_path, 'echo "$GREETING"', "cat", "echo trouble >&2", "exit 3")
    ended = await run(program, b"exact\0bytes")
    assert (ended.status, ended.stdout, ended.stderr) == (3, b"hello\nexact\0bytes", b"trouble\n")
    assert (ended.timed_out, ended.stdout_complete) == (False, True)
    assert 0 < ended.duration_s < 60


async def test_its_input_can_be_opened_by_name(tmp_path: Path) -> None:
    """Plugins written for the shell read /dev/stdin, which a socket would not allow."""
    ended = await run(script(tmp_path, "exec cat </dev/stdin"), b"asked")
    assert ended.stdout == b"asked"


async def test_it_is_alone_in_its_session(tmp_path: Path) -> None:
    """Its process group is its own, so that all of it can be killed and nothing else."""
    ended = await run(script(tmp_path, "echo $$ $(cut -d' ' -f 5,6 /proc/$$/stat)"))
    pid, group, session = map(int, ended.stdout.split())
    assert pid == group == session


async def test_it_inherits_no_descriptors(tmp_path: Path) -> None:
    """Nothing that the daemon has open leaks into a program, not even what is marked as inheritable."""
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        ended = await run(script(tmp_path, "exec ls -l /proc/self/fd"), stdout_bytes=10_000)
    assert b"secret" not in ended.stdout


async def test_its_limit_of_descriptors(tmp_path: Path) -> None:
    """It gets the one that is asked for, whatever that of the daemon is; what it waits for here is that limit."""
    program = script(tmp_path, "until [ $(ulimit -S -n) = 123 ]; do :; done")
    loop = asyncio.get_running_loop()
    ended = await run_program(
        program,
        {"PATH": "/usr/bin:/bin"},
        b"",
        deadline=loop.time() + 10,
        grace_s=1,
        stdout_bytes=100,
        stderr_bytes=100,
        descriptors=123,
    )
    assert (ended.timed_out, resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 123) == (False, False)


async def test_a_large_input_and_output_do_not_block_each_other(tmp_path: Path) -> None:
    """Both directions flow at once, however much there is."""
    data = bytes(range(256)) * 4096
    ended = await run(script(tmp_path, "exec cat"), data, stdout_bytes=len(data))
    assert ended.stdout == data
    assert ended.stdout_complete


@pytest.mark.parametrize("line", ["exit 0", "exec <&-; sleep 0.1"])
async def test_input_that_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str) -> None:
    """A program that does not read its input, or does not even keep it open, is no error."""
    ended = await run(script(tmp_path, line), b"x" * 1_000_000)
    assert ended.status == 0
    assert caplog.records == []


async def test_a_flood_is_bounded(tmp_path: Path) -> None:
    """Of too much output the head of stdout and the tail of stderr are kept, never more, and it ends by itself."""
    program = script(
        tmp_path,
        "echo first",
        "head -c 100000000 /dev/zero",
        "head -c 100000000 /dev/zero >&2",
        "echo last >&2",
    )
    tracemalloc.start()
    try:
        ended = await run(program, timeout_s=100)  # it takes a second, or many on a busy machine
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert (ended.status, ended.timed_out, ended.stdout_complete) == (0, False, False)
    assert ended.stdout == b"first\n" + bytes(994)
    assert ended.stderr == bytes(995) + b"last\n"


async def test_the_end_by_a_signal(tmp_path: Path) -> None:
    """A program that a signal ended has its negative number as status."""
    ended = await run(script(tmp_path, "kill -SEGV $$"))
    assert ended.status == -signal.SIGSEGV


async def test_sigpipe_is_not_ignored_in_it(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; programs must not inherit that."""
    ended = await run(script(tmp_path, "exec grep SigIgn /proc/self/status"))
    assert int(ended.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


async def test_the_deadline(tmp_path: Path) -> None:
    """At its deadline a program is asked to end, and may say something; what it started does not survive it."""
    program = script(
        tmp_path,
        "trap 'echo ending >&2; exit 7' TERM",
        "(trap '' TERM; exec sleep 60) >/dev/null 2>&1 &",
        f"echo $! >{tmp_path}/pid",
        "wait",
    )
    ended = await run(program, timeout_s=DEADLINE_S)
    assert (ended.timed_out, ended.status, ended.stderr) == (True, 7, b"ending\n")  # by itself: not killed
    await wait_until_gone(await wait_for_pid(tmp_path / "pid"))


async def test_the_deadline_of_one_that_ignores_it(tmp_path: Path) -> None:
    """After the grace it is killed, with everything it started."""
    program = script(tmp_path, "trap '' TERM", "sleep 60 &", f"echo $! >{tmp_path}/pid", "while :; do wait; done")
    ended = await run(program, timeout_s=DEADLINE_S)
    assert (ended.timed_out, ended.status) == (True, -signal.SIGKILL)
    assert ended.duration_s >= DEADLINE_S + GRACE_S
    await wait_until_gone(await wait_for_pid(tmp_path / "pid"))


async def test_a_deadline_that_has_passed(tmp_path: Path) -> None:
    """A program that comes too late is ended at once."""
    ended = await run(script(tmp_path, "sleep 60"), timeout_s=-1)
    assert ended.timed_out
    assert ended.duration_s < 60


async def test_what_it_leaves_behind_does_not_hang_us(tmp_path: Path) -> None:
    """A process left behind with the outputs open is killed after the grace; the result counts."""
    program = script(tmp_path, "sleep 60 &", f"echo $! >{tmp_path}/pid", "echo result")
    ended = await run(program)
    assert (ended.status, ended.stdout, ended.timed_out) == (0, b"result\n", False)
    assert GRACE_S <= ended.duration_s < 60
    await wait_until_gone(await wait_for_pid(tmp_path / "pid"))


async def test_what_it_leaves_behind_in_another_session(tmp_path: Path) -> None:
    """A daemon that went out of reach keeps running, and does not hang us either."""
    program = script(tmp_path, f"setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 60' &", "echo result")
    ended = await run(program)
    assert (ended.status, ended.stdout) == (0, b"result\n")
    pid = await wait_for_pid(tmp_path / "pid")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    await wait_until_gone(pid)


async def test_a_quiet_daemon_is_left_alone(tmp_path: Path) -> None:
    """What was left behind on purpose, with its outputs closed, is not killed and not waited for."""
    program = script(tmp_path, "sleep 60 >/dev/null 2>&1 &", f"echo $! >{tmp_path}/pid")
    ended = await run(program, grace_s=60.0)
    assert ended.duration_s < 60
    pid = await wait_for_pid(tmp_path / "pid")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    await wait_until_gone(pid)


async def test_what_it_leaves_behind_when_it_is_killed(tmp_path: Path) -> None:
    """Work that it had begun must not go on while it is undone, however quiet it is."""
    file = tmp_path / "pid"
    ended = await run(script(tmp_path, "sleep 60 <&- >&- 2>&- &", f"echo $! > {file}", "kill -KILL $$"))
    assert ended.status == -signal.SIGKILL
    await wait_until_gone(written_pid(file))


async def test_cancellation(tmp_path: Path) -> None:
    """A cancelled run kills the program and what it started, reaps it, and is cancelled."""
    program = script(
        tmp_path, "trap '' TERM", "sleep 60 &", f"echo $! >{tmp_path}/child", f"echo $$ >{tmp_path}/pid", "wait"
    )
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run(program))
        pid, child = await wait_for_pid(tmp_path / "pid"), await wait_for_pid(tmp_path / "child")
        started = time.monotonic()
        task.cancel()
    assert task.cancelled()
    assert time.monotonic() - started < GRACE_S
    assert is_reaped(pid)
    await wait_until_gone(child)


@pytest.mark.parametrize("content", ["#!/no/such/interpreter\n", "no program"])
async def test_what_cannot_be_started(tmp_path: Path, content: str) -> None:
    """A program that the kernel refuses is an error of the kernel."""
    path = tmp_path / "program"
    path.write_text(content)
    path.chmod(0o755)
    with pytest.raises(OSError, match=r"No such file|Exec format"):
        await run(path)


async def test_many_at_once(tmp_path: Path) -> None:
    """Programs that run at the same time do not get each other's output."""
    program = script(tmp_path, "cat")
    async with asyncio.TaskGroup() as tasks:
        runs = [tasks.create_task(run(program, str(number).encode())) for number in range(40)]
    assert [task.result().stdout for task in runs] == [str(number).encode() for number in range(40)]
