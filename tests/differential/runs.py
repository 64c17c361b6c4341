# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs many cases with both runtimes, in several processes."""

import asyncio
import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.differential.answers import PLUGINS
from tests.differential.cases import make_case
from tests.differential.compare import Difference, compare, find_class, load_classes
from tests.differential.libcni import Libcni
from tests.differential.ours import run_case

__all__ = ["Outcome", "run_cases"]

_SHARE: Final = 500
"""How many cases a process runs at a time."""


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What many cases have shown.

    Attributes:
        equal: How many had no difference at all.
        classes: How many cases had differences of a class.
        unknown: The differences of no class, each with its case.
    """

    equal: int = 0
    classes: Counter[str] = field(default_factory=Counter)
    unknown: list[tuple[str, Difference]] = field(default_factory=list)

    def add(self, other: "Outcome") -> None:
        """Add what other cases have shown."""
        self.equal += other.equal
        self.classes += other.classes
        self.unknown += other.unknown


def run_cases(driver: Path, seed: int, numbers: Sequence[int], processes: int) -> Outcome:
    """Run cases.

    Args:
        driver: The executable with libcni.
        seed: Chooses the cases.
        numbers: Their numbers.
        processes: How many run at once; 1: in this process.
    """
    shares = [numbers[start : start + _SHARE] for start in range(0, len(numbers), _SHARE)]
    outcome = Outcome()
    if processes == 1:
        for share in shares:
            outcome.add(_run_share(driver, seed, share))
        return outcome
    with ProcessPoolExecutor(processes) as pool:
        for one in pool.map(_run_share, *zip(*((driver, seed, share) for share in shares), strict=True)):
            outcome.add(one)
    return outcome


def _run_share(driver: Path, seed: int, numbers: Iterable[int]) -> Outcome:
    with _quiet(), tempfile.TemporaryDirectory(dir=_memory()) as directory, Libcni(driver) as libcni:
        return asyncio.run(_run(Path(directory), libcni, seed, numbers))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the library logs about broken files from being printed."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        yield
    finally:
        logging.disable(before)


def _memory() -> str | None:
    """Return a directory in memory, if there is one: cni_invoker waits for the disk."""
    memory = Path("/dev/shm")  # a unique directory is made there
    return str(memory) if memory.is_dir() else None


async def _run(directory: Path, libcni: Libcni, seed: int, numbers: Iterable[int]) -> Outcome:
    plugin_dir = directory / "plugins"
    plugin_dir.mkdir()
    for plugin in PLUGINS:
        (plugin_dir / plugin).touch(mode=0o755)  # nothing executes them
    classes = load_classes()
    outcome = Outcome()
    for number in numbers:
        case = make_case(seed, number)
        place = directory / "case"
        for name, content in case.files.items():
            file = place / "net.d" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        for cache in ("libcni", "ours"):
            (place / cache / "results").mkdir(parents=True)
        shared = {**case.request, "confDir": str(place / "net.d"), "pluginDirs": [str(plugin_dir)]}
        libcni.send({**shared, "cacheDir": str(place / "libcni")})
        ours = await run_case({**shared, "cacheDir": str(place / "ours")})
        differences = list(compare(case, libcni.receive(), ours))
        found = {one: find_class(one, classes) for one in differences}
        outcome.equal += not differences
        outcome.classes.update({known.name for known in found.values() if known is not None})
        outcome.unknown += [(case.name, one) for one, known in found.items() if known is None]
        shutil.rmtree(place, ignore_errors=True)
    return outcome
