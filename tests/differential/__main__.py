# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.differential`: cni_invoker beside libcni, over many cases that a seed chooses."""

import argparse
import random
import sys
import time
from collections.abc import Sequence

from tests.differential.libcni import FetchError, build_driver
from tests.differential.runs import run_cases


def main(arguments: Sequence[str]) -> int:
    """Run cases, print how often each class of differences was seen, and the differences of no class."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="repeats a run (default: random)")
    parser.add_argument("--only", type=int, help="run the case of this number alone, and show all of its differences")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--build", action="store_true", help="only build the program with libcni")
    options = parser.parse_args(arguments)
    try:
        driver = build_driver()
    except FetchError as exc:
        print(f"libcni cannot be had: {exc}", file=sys.stderr)
        return 1
    if options.build:
        print(driver)
        return 0
    started = time.monotonic()
    numbers = range(options.cases) if options.only is None else [options.only]
    outcome = run_cases(driver, options.seed, numbers, options.processes)
    took = time.monotonic() - started
    print(f"{len(numbers)} cases, seed {options.seed}, {took:.0f} s: {outcome.equal} without any difference")
    for name, count in outcome.classes.most_common():
        print(f"{count:8} {name}")
    for case, difference in outcome.unknown[:100]:
        print(f"unknown, case {case}: {difference.where}\n  libcni {difference.libcni}\n  ours   {difference.ours}")
        print(f"  facts  {' '.join(sorted(difference.facts))}")
    print(f"{len(outcome.unknown)} differences are of no known class; --seed and --only repeat a case")
    return 1 if outcome.unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
