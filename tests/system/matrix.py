# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.system.matrix`: the system tests on each engine with each set of plugins, one after the other.

An engine that can make its rules with nftables is one more engine when it does.

Missing engines and plugins are fetched. `--smoke` runs only the tests marked `smoke`, on what `make system` does not
use: other engines, other plugins, and the daemon's default mode. There, an engine that cannot be fetched is reported
and is no failure. Further arguments are passed to pytest.
"""

import argparse
import itertools
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cnm_bridge.core.settings import AttachOption
from tests.lab import Engine, Plugins, known_engines, known_plugins, with_nftables
from tests.lab.debian import FetchError
from tests.lab.fetch import fetch_program
from tests.lab.fetched_engines import fetch_engine, find_fetched_engine, known_sources
from tests.lab.fetched_plugins import DEFAULT_SUITE, fetch_plugins, find_fetched_plugins

TESTS: Final = str(Path(__file__).parent.relative_to(Path(__file__).parents[2]))
REPOSITORY: Final = Path(__file__).parents[2]
PYTEST: Final = (sys.executable, "-m", "pytest", TESTS)
_WITH_SANDBOX_AT_JOIN: Final = (28,)
"""The first engine on which the daemon attaches containers in several modes: see docs/attach-modes.md."""
NO_TESTS: Final = 5
"""pytest's exit status when it has selected none, e.g. by `-k`."""


@dataclass(slots=True)
class Run:
    """The tests on one engine with one set of plugins.

    Attributes:
        engine: The engine.
        plugins: The plugins.
        attach: How the daemon attaches containers.
        counts: How many tests had which outcome, in pytest's words: passed, failed, skipped, error.
        status: pytest's exit status.
        duration_s: How long the run took.
    """

    engine: Engine
    plugins: Plugins
    attach: AttachOption
    counts: Counter[str] = field(default_factory=Counter)
    status: int = 0
    duration_s: float = 0.0

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {word}" for word, count in self.counts.items()) or "no test"
        status = "" if self.status in (0, NO_TESTS) else f"; pytest's exit status is {self.status}"
        what = f"engine {self.engine.name}, plugins {self.plugins.name}, attach {self.attach}"
        return f"{what}: {counts} in {self.duration_s:.0f} s{status}"


def main(arguments: Sequence[str]) -> int:
    """Fetch, run, and print what was run, and what was not and why; return 1 if a test failed or could not run."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.matrix", description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a few tests, on what `make system` does not use")
    options, for_pytest = parser.parse_known_args(arguments)
    if options.smoke:
        for_pytest = ["-m", "smoke and not long", *for_pytest]
    missing = tuple(_fetch())
    known = known_engines()
    runs = [
        Run(engine, plugins, attach)
        for engine, plugins in choose_pairs((*known, *with_nftables(known)), known_plugins(), smoke=options.smoke)
        for attach in choose_modes(engine, smoke=options.smoke)
    ]
    for run in runs:
        print(f"\n== engine {run.engine.name}, plugins {run.plugins.name}, attach {run.attach}", flush=True)
        _execute(run, for_pytest)
    print("\n== all", *runs, sep="\n")
    if missing:
        count = _count_tests(for_pytest)
        print(*(f"not run, {count} tests: {what}" for what in missing), sep="\n")
    failed = any(run.status not in (0, NO_TESTS) for run in runs)
    return 1 if failed or (missing and not options.smoke) else 0


def _fetch() -> Iterator[str]:
    """Fetch what is missing; yield what cannot be fetched, with the reason."""
    for source in known_sources():
        try:
            if find_fetched_engine(source) is None:
                fetch_engine(source)
        except FetchError as exc:
            yield f"the engine of {source} cannot be fetched: {exc}"
    try:
        if find_fetched_plugins() is None:
            fetch_plugins()
    except FetchError as exc:
        yield f"the plugins of {DEFAULT_SUITE} cannot be fetched: {exc}"
    try:
        fetch_program("compose")
    except FetchError as exc:
        yield f"docker compose cannot be fetched: {exc}"


def choose_pairs(
    engines: Sequence[Engine], plugins: Sequence[Plugins], *, smoke: bool
) -> Iterator[tuple[Engine, Plugins]]:
    """Yield the pairs to run; the first engine and the first plugins are the machine's own.

    The smoke tests run once for each engine. All but the machine's have the last plugins.
    """
    if smoke:
        yield from ((engine, plugins[-1 if number else 0]) for number, engine in enumerate(engines))
    else:
        yield from itertools.product(engines, plugins)


def choose_modes(engine: Engine, *, smoke: bool) -> tuple[AttachOption, ...]:
    """Return how the daemon attaches containers, in one run for each.

    Before Engine 28 all modes are *move*. `make system` runs on the main engine in mode *fast*, so its smoke tests run
    in the other.
    """
    if engine.version < _WITH_SANDBOX_AT_JOIN or (smoke and engine.is_main):
        return (AttachOption.AUTO,)
    return AttachOption.AUTO, AttachOption.FAST


def _execute(run: Run, for_pytest: Sequence[str]) -> None:
    """Run pytest, print its output, and parse its last line, e.g. `1 failed, 73 passed in 63.11s`."""
    command = (*PYTEST, "--engine", run.engine.name, "--plugins", run.plugins.name, "--attach", run.attach, *for_pytest)
    started = time.monotonic()
    last = ""
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as pytest:
        assert pytest.stdout is not None
        for line in pytest.stdout:
            print(line, end="", flush=True)
            last = line
    run.status, run.duration_s = pytest.returncode, time.monotonic() - started
    run.counts = parse_counts(last)


def parse_counts(summary: str) -> Counter[str]:
    """Return what pytest's last line counts, without deselected tests."""
    found = re.findall(r"(\d+) ([a-z]+)(?=,| in )", summary)
    return Counter({word: int(count) for count, word in found if word != "deselected"})


def _count_tests(for_pytest: Sequence[str]) -> int:
    """Return how many tests pytest would run."""
    command = (*PYTEST, "--collect-only", "--quiet", *for_pytest)
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return sum("::" in line for line in done.stdout.splitlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
