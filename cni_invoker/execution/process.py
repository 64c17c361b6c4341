# SPDX-License-Identifier: Apache-2.0
"""Runs one program: writes its input, reads its output, waits for its end, and cleans up its process group.

It knows nothing of CNI. Instead of `asyncio.create_subprocess_exec` it combines `subprocess.Popen`, a pidfd and the
event loop's readers, for four reasons:

* The end of the program is seen before it is reaped. Until then its process group ID cannot be reused, so a signal to
  the group never hits another process.
* Under Python 3.11 asyncio starts a thread per child or needs a process-wide child watcher; a pidfd needs neither.
  Measured with `/bin/true`: 0.1 ms less than asyncio's thread.
* The event loop goes on while the kernel starts the program, which takes long if no processor is free or the disk is
  slow: `Popen` runs in another thread. Before Python 3.11.4, it keeps the interpreter meanwhile (gh-104372).
* A program may end while a process that it started keeps its pipes open. This module distinguishes the two.

It needs `pidfd_open`, Linux 5.3.
"""

import asyncio
import io
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Ended", "run_program"]

_CHUNK: Final = 1 << 16
"""The usual capacity of a pipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended.

    Attributes:
        status: Its exit status; -N if signal N ended it; None if it did not end even after SIGKILL, or if the status
            was lost: to the kernel if SIGCHLD is ignored, or to code in this process that waits for all children.
        timed_out: It did not end by itself in time.
        stdout: Its standard output, from the beginning.
        stdout_complete: False if it was truncated.
        stderr: The end of its standard error.
        duration_s: How long it took, in seconds.
    """

    status: int | None
    timed_out: bool
    stdout: bytes
    stdout_complete: bool
    stderr: bytes
    duration_s: float


async def run_program(
    path: Path,
    environment: Mapping[str, str],
    stdin: bytes,
    *,
    deadline: float,
    grace_s: float,
    stdout_bytes: int,
    stderr_bytes: int,
    descriptors: int | None = None,
    on_started: Callable[[int], None] = lambda _: None,
    prefix: Sequence[str] = (),
) -> Ended:
    """Run a program in its own session until it has ended and its output is read.

    At the deadline its process group receives SIGTERM, and SIGKILL when the program has ended or the grace period is
    over. The group also receives SIGKILL if a signal ended the program, or if the program ended in time but a process
    that it started keeps the output open for longer than the grace period.

    Cancellation kills the group and waits for the end of the program, at most for the grace period.

    Args:
        path: The program.
        environment: Its whole environment.
        stdin: Its whole standard input; the program need not read it.
        deadline: When it must have ended, on the event loop's clock.
        grace_s: The time between SIGTERM and SIGKILL, in seconds.
        stdout_bytes: How much standard output is kept, from its beginning; the rest is read and dropped.
        stderr_bytes: How much standard error is kept, from its end.
        descriptors: Its soft limit of open descriptors, set as soon as it runs; None: inherited.
        on_started: Called with its process ID, which is also its session ID, as soon as it runs.
        prefix: The words of a command that runs it, before its path.

    Raises:
        OSError: It cannot be started.
    """
    loop = asyncio.get_running_loop()
    started = loop.time()
    stdout, stderr = bytearray(), bytearray()
    complete = True

    def keep_head(data: bytes) -> None:
        nonlocal complete
        room = stdout_bytes - len(stdout)
        stdout.extend(data[:room])
        complete = complete and len(data) <= room

    def keep_tail(data: bytes) -> None:
        stderr.extend(data)
        del stderr[: max(0, len(stderr) - stderr_bytes)]

    child, cancelled = await _Child.start(
        [*prefix, str(path)], environment, stdin, on_stdout=keep_head, on_stderr=keep_tail
    )
    on_started(child.pid)
    if descriptors is not None:
        child.limit_descriptors(descriptors)
    try:
        if cancelled is not None:
            raise cancelled
        timed_out = not await _happens(child.ended, deadline - started)
        if timed_out:
            child.send(signal.SIGTERM)
            if not await _happens(child.ended, grace_s):
                child.send(signal.SIGKILL)
                await _happens(child.ended, grace_s)
        if child.was_killed:  # by another process; an iptables that it started must not run on while the ADD is undone
            child.send(signal.SIGKILL)
        if not await _happens(child.drained, grace_s) or timed_out:
            child.send(signal.SIGKILL)
    except asyncio.CancelledError:
        child.send(signal.SIGKILL)
        await _happens(child.ended, grace_s)
        raise
    finally:
        child.close()
    return Ended(
        status=child.status,
        timed_out=timed_out,
        stdout=bytes(stdout),
        stdout_complete=complete,
        stderr=bytes(stderr),
        duration_s=loop.time() - started,
    )


class _Child:
    """A running program, watched by callbacks of the event loop.

    It must be closed. A program that still runs then, because it hangs in the kernel, is reaped when it ends.

    Attributes:
        pid: Its process ID.
        status: Its exit status, or -N for signal N; None until it is reaped, or if the status was lost.
        ended: Set when the program has ended.
        drained: Set when all writers have closed both outputs.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        pidfd: int,
        pipes: tuple[io.FileIO, io.FileIO, io.FileIO],
        stdin: bytes,
        *,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> None:
        self.pid = process.pid
        self.ended = asyncio.Event()
        self.drained = asyncio.Event()
        self.status: int | None = None
        self._loop = asyncio.get_running_loop()
        self._process = process
        self._pidfd = pidfd
        self._stdin, self._stdout, self._stderr = pipes
        self._unwritten = memoryview(stdin)
        self._closed = False
        self._loop.add_reader(self._pidfd, self._end)
        self._loop.add_reader(self._stdout, self._read, self._stdout, on_stdout)
        self._loop.add_reader(self._stderr, self._read, self._stderr, on_stderr)
        self._write()
        if not self._stdin.closed:
            self._loop.add_writer(self._stdin, self._write)

    @classmethod
    async def start(
        cls,
        argv: Sequence[str],
        environment: Mapping[str, str],
        stdin: bytes,
        *,
        on_stdout: Callable[[bytes], None],
        on_stderr: Callable[[bytes], None],
    ) -> "tuple[_Child, asyncio.CancelledError | None]":
        """Start a program, in another thread; return it, and the cancellation that came meanwhile.

        Raises:
            OSError: It cannot be started.
        """
        with ExitStack() as ours, ExitStack() as theirs:
            its_stdin, our_stdin = _pipe(theirs, ours)
            our_stdout, its_stdout = _pipe(ours, theirs)
            our_stderr, its_stderr = _pipe(ours, theirs)
            for pipe in (our_stdin, our_stdout, our_stderr):
                os.set_blocking(pipe.fileno(), False)

            def popen() -> "subprocess.Popen[bytes]":
                return subprocess.Popen(
                    argv,
                    env=environment,
                    stdin=its_stdin,
                    stdout=its_stdout,
                    stderr=its_stderr,
                    start_new_session=True,
                )

            starting = asyncio.get_running_loop().run_in_executor(None, popen)
            cancelled = await _finish(starting)
            if cancelled is not None and starting.exception() is not None:
                raise cancelled
            process = starting.result()
            try:
                pidfd = os.pidfd_open(process.pid)
            except OSError:
                process.kill()
                process.wait()
                raise
            ours.pop_all()
        pipes = (our_stdin, our_stdout, our_stderr)
        return cls(process, pidfd, pipes, stdin, on_stdout=on_stdout, on_stderr=on_stderr), cancelled

    @property
    def was_killed(self) -> bool:
        """Whether a signal has ended it; False if its status was lost. This does not reap it."""
        with suppress(ChildProcessError):
            found = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            return found is not None and found.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
        return False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to its process group, whose ID is reserved until `close`."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def limit_descriptors(self, count: int) -> None:
        """Set its soft limit of open descriptors, if it has not ended."""
        with suppress(OSError, ValueError):  # it has ended, or the kernel refuses: then it keeps the inherited limit
            _, hard = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)
            resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (count, hard))

    def close(self) -> None:
        """Reap it and close our ends of the pipes."""
        self._closed = True
        if not self._stdin.closed:
            self._loop.remove_writer(self._stdin)
            self._stdin.close()
        for pipe in (self._stdout, self._stderr):
            if not pipe.closed:
                self._loop.remove_reader(pipe)
                pipe.close()
        if self.ended.is_set():
            self._reap()

    def _end(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.ended.set()
        if self._closed:
            self._reap()

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        # `Popen.wait` would report a lost status as success, so keep it from waiting.
        self._process.returncode = 0

    def _read(self, pipe: io.FileIO, keep: Callable[[bytes], None]) -> None:
        data = pipe.read(_CHUNK)
        if data:
            keep(data)
        elif data is not None:
            self._loop.remove_reader(pipe)
            pipe.close()
            if self._stdout.closed and self._stderr.closed:
                self.drained.set()

    def _write(self) -> None:
        try:
            written = self._stdin.write(self._unwritten)
        except BrokenPipeError:
            self._unwritten = self._unwritten[:0]
        else:
            self._unwritten = self._unwritten[written or 0 :]
        if not self._unwritten:
            self._loop.remove_writer(self._stdin)
            self._stdin.close()


def _pipe(of_reader: ExitStack, of_writer: ExitStack) -> tuple[io.FileIO, io.FileIO]:
    """Return the two ends of a new pipe, each closed by its stack."""
    reader, writer = os.pipe()
    return of_reader.enter_context(io.FileIO(reader)), of_writer.enter_context(io.FileIO(writer, "w"))


async def _finish(future: "asyncio.Future[subprocess.Popen[bytes]]") -> asyncio.CancelledError | None:
    """Wait until a future is done, which takes moments; return the cancellation that came meanwhile."""
    cancelled = None
    while not future.done():
        try:
            await asyncio.wait((future,))
        except asyncio.CancelledError as exc:
            cancelled = exc
    return cancelled


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    """Wait for an event; return whether it happened in time."""
    if not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await event.wait()
    return event.is_set()
