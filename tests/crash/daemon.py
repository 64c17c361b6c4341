# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.crash.daemon DIRECTORY serve …`: the daemon, with deadly boundaries between its effects, and again.

The imports take longer than all the rest of a life, and a matrix has thousands of lives. So each is a fork of this
process, which has imported everything and done nothing. A life that SIGKILL has ended leaves the file `dead`, and the
next one begins when that is removed; with any other life this process ends as well, and SIGTERM is for the life.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

import cnm_bridge.daemon  # noqa: F401 - the command imports it late
from cnm_bridge.cli.main import main
from tests.crash.boundaries import DEAD, Boundaries, install

_POLL_S: Final = 0.005
_FORWARDED: Final = frozenset({signal.SIGTERM})


def _live(directory: Path) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    install(Boundaries(directory))
    main(prog_name="cni-bridge")


def _outlive(life: int) -> int:
    """Wait for the end of a life and give its exit status, negative for a signal, as subprocess does."""
    signal.signal(signal.SIGTERM, lambda *_: os.kill(life, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    _, status = os.waitpid(life, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    return os.waitstatus_to_exitcode(status)


def _fork() -> int:
    """Fork; SIGTERM waits until both know what to do with it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    return os.fork()


if __name__ == "__main__":
    directory = Path(sys.argv.pop(1))
    dead = directory / DEAD
    while life := _fork():
        if (code := _outlive(life)) != -signal.SIGKILL:
            sys.exit(code)
        dead.touch()
        while dead.exists():
            time.sleep(_POLL_S)
    _live(directory)
