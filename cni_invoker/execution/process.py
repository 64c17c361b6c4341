# SPDX-License-Identifier: Apache-2.0
"""Runs one program: in a thread that starts it, waits for it, and cleans up its process group.

The end of the program is seen before it is reaped: until then its process group ID cannot be reused, so a signal to the
group never hits another process. It needs Linux 5.3.
"""

import io
import os
import resource
import select
import signal
import subprocess
import time
from _thread import start_new_thread
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cni_invoker.execution.limits import Limits
from cni_invoker.waiting import run_in_thread

_CHUNK: Final = 1 << 16  # the usual capacity of a pipe


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        status: Its exit status; -N if signal N ended it; None if it did not end even after SIGKILL, or if the kernel
            (SIGCHLD is ignored) or other code of this process took the status.
        timed_out: It did not end by itself in time.
        stdout_complete: False if `stdout` is only the beginning; of `stderr` there is the end.
    """

    status: int | None
    timed_out: bool
    stdout: bytes
    stdout_complete: bool
    stderr: bytes
    duration_s: float


async def run_program(
    argv: Sequence[str],
    environment: Mapping[str, str],
    stdin: bytes,
    limits: Limits,
    *,
    deadline: float,
    on_started: Callable[[int], None] = lambda _: None,
) -> Ended:
    """Run a program in its own session until it has ended and its output is read.

    At the deadline its process group receives SIGTERM, and SIGKILL when the program has ended or the grace period is
    over. It also receives SIGKILL if a signal ended the program, or if a process keeps the output open for the grace
    period after the program's end.

    Cancellation kills the group and waits for the end of the program, at most for the grace period.

    Args:
        argv: The program's path, and its arguments.
        environment: All of it.
        stdin: All of it; the program need not read it.
        limits: Grace period, sizes (what is more is read and dropped), and what it inherits.
        deadline: When it must have ended, on the clock of `time.monotonic`.
        on_started: Called with its process and session ID as soon as it runs; in another thread.

    Raises:
        OSError: It cannot be started.
    """
    started = time.monotonic()
    stop = os.eventfd(0, os.EFD_CLOEXEC)

    def run() -> _Program:
        with stopped, _Program(argv, environment, stdin, limits, stopped.fileno()) as running:
            if limits.oom_score is not None:  # first, because what it starts inherits it
                running.set_oom_score(limits.oom_score)
            on_started(running.pid)
            if limits.descriptors is not None:
                running.limit_descriptors(limits.descriptors)
            running.run(deadline)
        return running

    try:
        stopped = io.FileIO(os.dup(stop))  # the thread's own: it outlives this coroutine if that is closed
        program = await run_in_thread(run, stop=lambda: os.eventfd_write(stop, 1))
    except BlockingIOError:
        stopped.close()  # there may be no thread
        raise
    finally:
        os.eventfd_write(stop, 1)
        os.close(stop)
    return Ended(
        status=program.status,
        timed_out=program.timed_out,
        stdout=bytes(program.stdout),
        stdout_complete=program.stdout_complete,
        stderr=bytes(program.stderr),
        duration_s=time.monotonic() - started,
    )


class _Stopped(Exception):
    """The caller does not wait any more."""


class _Program:
    """A program in its own session, killed after an exception in the context, and always reaped.

    Attributes as in `Ended`. `run` raises `_Stopped` when the eventfd `stop` is readable.
    """

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], stdin: bytes, limits: Limits, stop: int
    ) -> None:
        self.status: int | None = None
        self.timed_out = False
        self.stdout = bytearray()
        self.stdout_complete = True
        self.stderr = bytearray()
        self._stop = stop
        self._limits = limits
        self._unwritten = memoryview(stdin)
        self._has_ended = False
        with ExitStack() as opened:
            self.pid, pipes = _start(argv, environment, opened)
            try:
                self._pidfd = os.pidfd_open(self.pid)
            except OSError:
                self._send(signal.SIGKILL)
                _reap_at_end(self.pid)
                raise
            opened.callback(os.close, self._pidfd)
            self._opened = opened.pop_all()
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in pipes)
        self._pipes = {pipe.fileno(): pipe for pipe in pipes}
        self._poll = select.poll()
        for descriptor in (stop, self._pidfd, self._stdout, self._stderr):
            self._poll.register(descriptor, select.POLLIN)
        self._poll.register(self._stdin, select.POLLOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error_type: type[BaseException] | None, *_: object) -> None:
        with self._opened:
            try:
                if error_type is not None:
                    self._poll.unregister(self._stop)
                    self._send(signal.SIGKILL)
                    self._serve(time.monotonic() + self._limits.grace_s, self._is_ended)
            finally:
                if self._has_ended:
                    self.status = _reap(self.pid)
                else:
                    _reap_at_end(self.pid)

    def set_oom_score(self, score: int) -> None:
        """Set how likely the kernel is to kill it when memory is short, if it has not ended."""
        with suppress(OSError):  # it has ended, or the kernel refuses: then it keeps the inherited score
            Path(f"/proc/{self.pid}/oom_score_adj").write_text(str(score), "ascii")

    def limit_descriptors(self, count: int) -> None:
        """Set its soft limit of open descriptors, if it has not ended."""
        with suppress(OSError, ValueError):  # it has ended, or the kernel refuses: then it keeps the inherited limit
            _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (count, hard))

    def run(self, deadline: float) -> None:
        """Wait until it has ended and its output is read, and kill what remains of its process group."""
        self.timed_out = not self._serve(deadline, self._is_ended)
        if self.timed_out:
            self._send(signal.SIGTERM)
            if not self._serve(time.monotonic() + self._limits.grace_s, self._is_ended):
                self._send(signal.SIGKILL)
                self._serve(time.monotonic() + self._limits.grace_s, self._is_ended)
        if self._was_killed():  # a program that it started must not continue during the undo
            self._send(signal.SIGKILL)
        if not self._serve(time.monotonic() + self._limits.grace_s, self._is_drained) or self.timed_out:
            self._send(signal.SIGKILL)

    def _serve(self, until: float, is_done: Callable[[], bool]) -> bool:
        """Read and write until `is_done`, once even if `until` is past; return whether that was in time."""
        while not is_done():
            left_s = until - time.monotonic()
            for descriptor, _ in self._poll.poll(min(max(0.0, left_s), 3600.0) * 1000):  # it takes 24 days at most
                self._handle(descriptor)
            if left_s <= 0:
                break
        return is_done()

    def _handle(self, descriptor: int) -> None:
        match descriptor:
            case self._stop:
                raise _Stopped
            case self._pidfd:
                self._poll.unregister(descriptor)
                self._has_ended = True
            case self._stdin:
                self._write()
            case self._stdout:
                data = self._read(descriptor)
                room = self._limits.stdout_bytes - len(self.stdout)
                self.stdout.extend(data[:room])
                self.stdout_complete = self.stdout_complete and len(data) <= room
            case self._stderr:
                self.stderr.extend(self._read(descriptor))
                del self.stderr[: max(0, len(self.stderr) - self._limits.stderr_bytes)]

    def _write(self) -> None:
        try:
            written = os.write(self._stdin, self._unwritten)
        except BlockingIOError:
            return
        except BrokenPipeError:
            written = len(self._unwritten)
        self._unwritten = self._unwritten[written:]
        if not self._unwritten:
            self._close(self._stdin)

    def _read(self, descriptor: int) -> bytes:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return b""
        if not data:
            self._close(descriptor)
        return data

    def _close(self, descriptor: int) -> None:
        self._poll.unregister(descriptor)
        self._pipes.pop(descriptor).close()

    def _is_ended(self) -> bool:
        return self._has_ended

    def _is_drained(self) -> bool:
        """Return whether all writers have closed both outputs."""
        return self._stdout not in self._pipes and self._stderr not in self._pipes

    def _was_killed(self) -> bool:
        """Return whether a signal has ended it; False if its status was lost."""
        with suppress(ChildProcessError):
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            return found is not None and found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        return False

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to its process group, whose ID is reserved until it is reaped."""
        with suppress(ProcessLookupError, PermissionError):  # it has ended, or belongs to another user
            os.killpg(self.pid, number)


def _start(
    argv: Sequence[str], environment: Mapping[str, str], ours: ExitStack
) -> tuple[int, tuple[io.FileIO, io.FileIO, io.FileIO]]:
    """Start a program; return its process ID and our ends of its pipes, which `ours` closes."""
    with ExitStack() as theirs:  # before Python 3.11.4, Popen does not close its pipes if there are too few descriptors
        its_stdin, stdin = _pipe(theirs, ours)
        stdout, its_stdout = _pipe(ours, theirs)
        stderr, its_stderr = _pipe(ours, theirs)
        for pipe in (stdin, stdout, stderr):
            os.set_blocking(pipe.fileno(), False)  # another process may read what poll(2) has seen
        process = subprocess.Popen(
            argv, env=environment, stdin=its_stdin, stdout=its_stdout, stderr=its_stderr, start_new_session=True
        )
    process.returncode = 0  # so that it neither waits nor warns
    return process.pid, (stdin, stdout, stderr)


def _pipe(of_reader: ExitStack, of_writer: ExitStack) -> tuple[io.FileIO, io.FileIO]:
    reader, writer = os.pipe()
    return of_reader.enter_context(io.FileIO(reader)), of_writer.enter_context(io.FileIO(writer, "w"))


def _reap(pid: int) -> int | None:
    """Wait for a program; return its `Ended.status`."""
    with suppress(ChildProcessError):
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None


def _reap_at_end(pid: int) -> None:
    """Reap a program in a thread: SIGKILL does not end one that hangs in the kernel."""
    with suppress(RuntimeError):  # without a free thread it stays a zombie
        start_new_thread(_reap, (pid,))
