# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.crash.daemon DIRECTORY serve …`: runs of the daemon with deadly boundaries between its effects.

The imports take longer than the rest of a run, and a matrix has thousands of runs. So each run is a fork of this
process, which has imported everything and done nothing. A run that SIGKILL has ended leaves the file `dead`, and the
next one starts when that file is removed; when a run ends otherwise, this process ends too. SIGTERM is passed on.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import cnm_bridge.daemon  # noqa: F401 - the command imports it late
from cnm_bridge.operator.cli.main import main
from tests.crash.boundaries import DEAD, Boundaries, install

_POLL_S: Final = 0.005
_FORWARDED: Final = frozenset({signal.SIGTERM})


def _run_daemon(directory: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    install(Boundaries(directory))
    main(prog_name="cni-bridge")


def _wait(pid: int) -> int:
    """Wait for the end of a run and return its exit status, negative for a signal, as subprocess does."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    _, status = os.waitpid(pid, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return os.waitstatus_to_exitcode(status)


def _fork() -> int:
    """Fork; SIGTERM is blocked until both processes have set their handlers."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    return os.fork()


if __name__ == "__main__":
    directory = Path(sys.argv.pop(1))
    dead = directory / DEAD
    while pid := _fork():
        if (code := _wait(pid)) != -signal.SIGKILL:
            sys.exit(code)
        dead.touch()
        while dead.exists():
            time.sleep(_POLL_S)
    _run_daemon(directory)
