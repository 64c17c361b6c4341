# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.soak --operations N --seed S`: a soak on a lab, with progress; exit status 1 on any difference."""

import argparse
import os
import random
import sys
from collections.abc import Sequence
from typing import Final

from cni_invoker import Limits
from cnm_bridge.core.settings import AttachOption
from tests.lab import Lab, find_engine, main_engine
from tests.soak.generator import Generator
from tests.soak.lists import NAMES, OF_DOCKER, PUBLISHING
from tests.soak.machine import ALL_MOVED, Machine
from tests.soak.soak import Soak
from tests.soak.trouble import Trouble, with_lists

_KILL_SHARE: Final = 0.35
"""The share of rounds in which something is killed."""


def main(arguments: Sequence[str]) -> int:
    """Run a soak; print checkpoints and figures, and after a difference the whole log, the differences and the seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--operations", type=int, default=1000, help="the minimum number; default: %(default)s")
    parser.add_argument("--seed", type=int, help="the seed of an earlier run, to repeat it; default: a new one")
    parser.add_argument(
        "--troubles",
        nargs="*",
        type=Trouble,
        choices=Trouble,
        default=sorted(Trouble),
        metavar="KIND",
        help=f"only these kinds of {', '.join(Trouble)}; default: all",
    )
    parser.add_argument(
        "--engine",
        metavar="VERSION",
        help="the Docker engine, e.g. 26.1; default: 28.5 if it was fetched, else the machine's",
    )
    parser.add_argument(
        "--attach",
        type=AttachOption,
        default=AttachOption.AUTO,
        metavar="MODE",
        help="how the daemon attaches: fast mixes the modes, from engine 28 on; default: %(default)s",
    )
    options = parser.parse_args(arguments)
    if os.geteuid() != 0:
        parser.error("a lab needs root")
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    engine = find_engine(options.engine) if options.engine else main_engine()
    log: list[str] = []

    def say(line: str) -> None:
        log.append(line)
        if "checkpoint" in line:
            print(line, flush=True)

    troubles = " ".join(options.troubles) or "none"
    print(f"seed {seed}: {options.operations} operations, attach {options.attach}, troubles: {troubles}", flush=True)
    with Lab(engine=engine) as lab:
        lists = with_lists(NAMES, options.troubles)
        if options.attach not in ALL_MOVED:  # Docker gives its own links no name beside one that it did not move
            lists = tuple(name for name in lists if name not in OF_DOCKER)
        machine = Machine(lab, lists, options.attach)
        burst = 2 * Limits().executions
        generator = Generator(seed, lists, PUBLISHING, _KILL_SHARE, troubles=options.troubles, burst=burst)
        figures = Soak(machine, generator, say).run(options.operations)
    if figures.differences:
        print("\nthe log:", *log, "\ndifferences:", *figures.differences, sep="\n")
    print(f"\nseed {seed}", figures, sep="\n")
    return 1 if figures.differences else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
