# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Running one program: input, output, exit, and the end of all its processes, however it behaves."""

import asyncio
import fcntl
import os
import resource
import signal
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cni_invoker.execution.limits import Limits
from cni_invoker.execution.process import run_program
from tests.unit.cni_invoker.execution.programs import (
    DEADLINE_S,
    GRACE_S,
    HANG_LIMIT_S,
    LONG_S,
    is_reaped,
    run,
    script,
    wait_for_pid,
    wait_until_gone,
    written_pid,
)
from tests.unit.cni_invoker.processes import is_alive

INHERITED_SCORE = Path("/proc/self/oom_score_adj").read_bytes()


async def test_a_program_receives_input_and_returns_its_output(tmp_path: Path) -> None:
    """A program gets exactly its input and environment; both outputs and the exit status are returned."""
    program = script(tmp_path, 'echo "$GREETING"', "cat", "echo trouble >&2", "exit 3")
    ended = await run(program, b"exact\0bytes")
    assert (ended.status, ended.stdout, ended.stderr) == (3, b"hello\nexact\0bytes", b"trouble\n")
    assert (ended.timed_out, ended.stdout_complete) == (False, True)
    assert ended.duration_s > 0


async def test_standard_input_can_be_opened_by_name(tmp_path: Path) -> None:
    """Shell plugins open /dev/stdin, which is impossible if it is a socket."""
    ended = await run(script(tmp_path, "exec cat </dev/stdin"), b"asked")
    assert ended.stdout == b"asked"


async def test_a_program_has_its_own_session(tmp_path: Path) -> None:
    """It leads a process group and a session, so that it can be killed with its children, and nothing else with it."""
    ended = await run(script(tmp_path, "echo $$ $(cut -d' ' -f 5,6 /proc/$$/stat)"))
    pid, group, session = map(int, ended.stdout.split())
    assert pid == group == session


async def test_a_program_inherits_no_descriptors(tmp_path: Path) -> None:
    """Even descriptors of the daemon that are marked as inheritable are closed."""
    with (tmp_path / "secret").open("w") as secret:
        os.set_inheritable(secret.fileno(), True)
        ended = await run(script(tmp_path, "exec ls -l /proc/self/fd"), stdout_bytes=10_000)
    assert b"secret" not in ended.stdout


async def test_a_program_has_its_own_limit_of_descriptors(tmp_path: Path) -> None:
    """RLIMIT_NOFILE of the program is set, and the daemon's is unchanged; the program runs until it has that limit."""
    program = script(tmp_path, "until [ $(ulimit -S -n) = 123 ]; do :; done")
    loop = asyncio.get_running_loop()
    ended = await run_program(
        [str(program)],
        {"PATH": "/usr/bin:/bin"},
        b"",
        Limits(grace_s=1, stdout_bytes=100, stderr_bytes=100, descriptors=123),
        deadline=loop.time() + 10,
    )
    assert (ended.timed_out, resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 123) == (False, False)


async def test_a_program_has_its_own_oom_score(tmp_path: Path) -> None:
    """The kernel kills it before the process that runs it; what it starts inherits the score."""
    wait = (
        'until [ "$(cat /proc/self/oom_score_adj)" = 700 ]; do :; done; echo reset'  # it may be faster than the reset
    )
    for score, script_lines, expected in ((700, (wait,), b"reset\n"), (None, ("cat /proc/self/oom_score_adj",), None)):
        ended = await run_program(
            [str(script(tmp_path, *script_lines))],
            dict(os.environ),
            b"",
            Limits(grace_s=GRACE_S, stdout_bytes=100, stderr_bytes=100, oom_score=score),
            deadline=time.monotonic() + DEADLINE_S,
        )
        assert ended.stdout == (expected or INHERITED_SCORE)


async def test_a_large_input_and_output_do_not_block_each_other(tmp_path: Path) -> None:
    """Input and output are transferred concurrently, in any size."""
    data = bytes(range(256)) * 4096
    ended = await run(script(tmp_path, "exec cat"), data, stdout_bytes=len(data))
    assert ended.stdout == data
    assert ended.stdout_complete


@pytest.mark.parametrize("line", ["exit 0", "exec <&-; sleep 0.1"])
async def test_a_program_need_not_read_its_input(tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str) -> None:
    """A program that ignores its input, or closes it, is no error."""
    ended = await run(script(tmp_path, line), b"x" * 1_000_000)
    assert ended.status == 0
    assert caplog.records == []


async def test_the_memory_for_output_is_bounded(tmp_path: Path) -> None:
    """The beginning of standard output and the end of standard error are kept; the program exits by itself."""
    program = script(
        tmp_path,
        "echo first",
        "head -c 100000000 /dev/zero",
        "head -c 100000000 /dev/zero >&2",
        "echo last >&2",
    )
    tracemalloc.start()
    try:
        ended = await run(program, timeout_s=100)  # takes a second, and much longer on a busy machine
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000
    assert (ended.status, ended.timed_out, ended.stdout_complete) == (0, False, False)
    assert ended.stdout == b"first\n" + bytes(994)
    assert ended.stderr == bytes(995) + b"last\n"


async def test_sigpipe_has_its_default_action(tmp_path: Path) -> None:
    """Python ignores SIGPIPE; a program must not inherit that."""
    ended = await run(script(tmp_path, "exec grep SigIgn /proc/self/status"))
    assert int(ended.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


async def test_a_program_receives_sigterm_at_its_deadline(tmp_path: Path) -> None:
    """It may still print and exit; children that ignore SIGTERM are killed."""
    program = script(
        tmp_path,
        "trap 'echo ending >&2; exit 7' TERM",
        "(trap '' TERM; exec sleep 60) >/dev/null 2>&1 &",
        f"echo $! >{tmp_path}/pid",
        "wait",
    )
    ended = await run(program, timeout_s=DEADLINE_S)
    assert (ended.timed_out, ended.status, ended.stderr) == (True, 7, b"ending\n")  # it exited by itself
    await wait_until_gone(await wait_for_pid(tmp_path / "pid"))


async def test_a_program_that_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    """Its children are killed with it."""
    program = script(
        tmp_path,
        "trap 'echo ignored >&2' TERM",
        "(trap '' TERM; exec sleep 60) &",
        f"echo $! >{tmp_path}/pid",
        "while :; do wait; done",
    )
    started = time.monotonic()
    ended = await run(program, timeout_s=DEADLINE_S)
    assert (ended.timed_out, ended.status, ended.stderr) == (True, -signal.SIGKILL, b"ignored\n")
    assert time.monotonic() - started >= DEADLINE_S + GRACE_S
    await wait_until_gone(await wait_for_pid(tmp_path / "pid"))


async def test_a_deadline_in_the_past_ends_the_program_at_once(tmp_path: Path) -> None:
    """The program is started, and ended immediately."""
    async with asyncio.timeout(HANG_LIMIT_S):
        ended = await run(script(tmp_path, f"sleep {LONG_S}"), timeout_s=-1)
    assert ended.timed_out


async def test_a_child_that_keeps_the_outputs_open_is_killed_after_the_grace(tmp_path: Path) -> None:
    """The exit status and the output of the program count."""
    program = script(tmp_path, f"sleep {LONG_S} &", f"echo $! >{tmp_path}/pid", "echo result")
    started = time.monotonic()
    async with asyncio.timeout(HANG_LIMIT_S):
        ended = await run(program, timeout_s=LONG_S)
    assert (ended.status, ended.stdout, ended.timed_out) == (0, b"result\n", False)
    assert time.monotonic() - started >= GRACE_S
    await wait_until_gone(await wait_for_pid(tmp_path / "pid"))


async def test_a_child_in_another_session_is_not_waited_for(tmp_path: Path) -> None:
    """A daemon in its own session keeps running, even with the outputs open."""
    program = script(tmp_path, f"setsid sh -c 'echo $$ >{tmp_path}/pid; exec sleep 60' &", "echo result")
    ended = await run(program)
    assert (ended.status, ended.stdout) == (0, b"result\n")
    pid = await wait_for_pid(tmp_path / "pid")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    await wait_until_gone(pid)


async def test_a_child_with_closed_outputs_is_not_killed(tmp_path: Path) -> None:
    """A program that exited by itself may leave such a daemon, which is not waited for either."""
    program = script(tmp_path, "sleep 60 >/dev/null 2>&1 &", f"echo $! >{tmp_path}/pid")
    async with asyncio.timeout(HANG_LIMIT_S):
        await run(program, grace_s=LONG_S)
    pid = await wait_for_pid(tmp_path / "pid")
    assert is_alive(pid)
    os.kill(pid, signal.SIGKILL)
    await wait_until_gone(pid)


async def test_children_of_a_killed_program_are_killed(tmp_path: Path) -> None:
    """They must not continue during the undo, even with closed outputs."""
    file = tmp_path / "pid"
    ended = await run(script(tmp_path, "sleep 60 <&- >&- 2>&- &", f"echo $! > {file}", "kill -KILL $$"))
    assert ended.status == -signal.SIGKILL
    await wait_until_gone(written_pid(file))


async def test_cancellation_kills_the_program_at_once(tmp_path: Path) -> None:
    """The program and its children are killed without grace, and the program is reaped."""
    program = script(
        tmp_path, "trap '' TERM", "sleep 60 &", f"echo $! >{tmp_path}/child", f"echo $$ >{tmp_path}/pid", "wait"
    )
    async with asyncio.timeout(HANG_LIMIT_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(run(program, timeout_s=LONG_S, grace_s=LONG_S))
        pid, child = await wait_for_pid(tmp_path / "pid"), await wait_for_pid(tmp_path / "child")
        task.cancel()
    assert task.cancelled()
    assert is_reaped(pid)
    await wait_until_gone(child)


@contextmanager
def held_by_kernel(program: Path) -> Iterator[None]:
    """Let the kernel wait with the execution of a program until the file's lease is given back (fcntl(2))."""
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    descriptor = os.open(program, os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        yield
    finally:
        os.close(descriptor)
        signal.signal(signal.SIGIO, before)


@pytest.mark.skipif(sys.version_info < (3, 11, 4), reason="Popen keeps the interpreter while a program starts")
async def test_the_event_loop_goes_on_while_the_kernel_starts_a_program(tmp_path: Path) -> None:
    """A slow disk does not hold up calls that need no program."""
    program = script(tmp_path, "echo result")
    async with asyncio.timeout(HANG_LIMIT_S), asyncio.TaskGroup() as tasks:  # the kernel ends a lease after 45 s
        with held_by_kernel(program):
            running = tasks.create_task(run(program, timeout_s=LONG_S))
            await asyncio.sleep(0.2)
            assert not running.done()
    assert running.result().stdout == b"result\n"


@pytest.mark.skipif(sys.version_info < (3, 11, 4), reason="Popen keeps the interpreter while a program starts")
async def test_a_cancellation_while_a_program_starts_ends_it(tmp_path: Path) -> None:
    """The caller waits for its end."""
    program = script(tmp_path, f"sleep {LONG_S}")
    async with asyncio.timeout(HANG_LIMIT_S), asyncio.TaskGroup() as tasks:
        with held_by_kernel(program):
            running = tasks.create_task(run(program, timeout_s=LONG_S))
            await asyncio.sleep(0.2)
            running.cancel()
            await asyncio.sleep(0)
            assert not running.done()
    assert running.cancelled()
    with pytest.raises(ChildProcessError):
        await asyncio.to_thread(os.waitpid, -1, os.WNOHANG)
