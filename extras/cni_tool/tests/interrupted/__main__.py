# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m extras.cni_tool.tests.interrupted`: no lost DEL, whatever kills or hinders the runtime."""

import argparse
import logging
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from extras.cni_tool.tests.interrupted.run import Run, RunFailed

__all__ = ["main"]

_DISK_PAGES: Final = 64


def main(arguments: Sequence[str]) -> int:
    """Play runs in two processes, and report those that lost something."""
    parser = argparse.ArgumentParser(prog="python -m extras.cni_tool.tests.interrupted", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats them (default: random)")
    parser.add_argument("--only", type=int, help="play the run of this number alone")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    options = parser.parse_args(arguments)
    numbers = range(options.runs) if options.only is None else [options.only]
    started = time.monotonic()
    with multiprocessing.Pool(options.processes) as pool:
        shares = [(options.seed, list(numbers[first :: options.processes])) for first in range(options.processes)]
        played = pool.starmap(_play, shares)
    failures = [failure for share, _ in played for failure in share]
    outcomes = sum((seen for _, seen in played), Counter[tuple[str, str]]())
    for (fault, ended), count in sorted(outcomes.items()):
        print(f"{count:7} steps with {fault}: {ended}")
    for failure in failures[:20]:
        print(failure)
    took = time.monotonic() - started
    print(f"{len(numbers)} runs, seed {options.seed}, {took:.0f} s: {len(failures)} lost something")
    return 1 if failures else 0


def _play(seed: int, numbers: Sequence[int]) -> tuple[list[str], Counter[tuple[str, str]]]:
    """Play runs on a small disk of their own."""
    logging.disable()
    failures: list[str] = []
    outcomes: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory(prefix="interrupted-") as directory:
        disk = Path(directory) / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_DISK_PAGES * 4}k", "tmpfs", disk], check=True)
        try:
            for number in numbers:
                place = Path(directory) / "run"
                run = Run(disk, place, f"{seed}:{number}")
                try:
                    run.play()
                except RunFailed as exc:
                    failures.append(f"run {seed}:{number}: {exc}")
                outcomes.update(run.outcomes)
                shutil.rmtree(place)
                shutil.rmtree(disk / "cache")
        finally:
            subprocess.run(["umount", disk], check=True)
    return failures, outcomes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
