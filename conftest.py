# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Guards for every test: it must leave no thread, child process or file descriptor behind.

Leaked asyncio tasks show up as warnings, and warnings are errors. The options choose the engine and the plugins of the
system tests' labs.
"""

import _thread
import gc
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.skipped import pytest_terminal_summary

__all__ = ["pytest_terminal_summary"]

# Hypothesis measures time; a busy machine must not fail a test.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("unhurried"), max_examples=25)  # for `make check`
settings.load_profile("unhurried")

END_LIMIT_S = 2.0
"""How long a thread or child may take to end after its test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for the engine and the plugins of tests/system."""
    group = parser.getgroup("lab", "the labs of the system tests")
    text = "{} of the labs, by the beginning of its version, e.g. {}; default: ${} or {}"
    main = "28.5 if it was fetched, else the machine's"
    for option, what, example, default in (
        ("engine", "the Docker engine", "26.1", main),
        ("plugins", "the CNI plugins", "1.9", "the machine's"),
    ):
        dest = f"lab_{option}"
        variable = dest.upper()
        description = text.format(what, example, variable, default)
        group.addoption(f"--{option}", dest=dest, metavar="VERSION", default=os.environ.get(variable), help=description)
    group.addoption(
        "--attach",
        dest="lab_attach",
        choices=("auto", "fast", "move"),
        default=os.environ.get("LAB_ATTACH", "fast"),
        help="how the daemon attaches containers; default: $LAB_ATTACH or fast, which mixes the modes",
    )


def pytest_collection_finish() -> None:
    """Exempt what has been imported from garbage collections; each took a tenth of a second with it."""
    gc.collect()
    gc.freeze()


def _children() -> set[str]:
    """Return the process IDs of the children of every thread of this process."""
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ends meanwhile
            found.update((task / "children").read_text().split())
    return found


def _descriptors() -> dict[str, str]:
    """Return what this process's file descriptors stand for."""
    found = {}
    for link in Path("/proc/self/fd").iterdir():
        try:
            found[link.name] = str(link.readlink())
        except FileNotFoundError:  # the one that lists this directory
            continue
    return found


def count_threads() -> int:
    """Return the number of Python's threads besides the main one; `threading` does not know all of them."""
    return _thread._count()


@pytest.fixture(autouse=True)
def nothing_left_in_process() -> Iterator[None]:
    """Fail a test that leaves a thread, a child process or a file descriptor behind."""
    threads, children, descriptors = count_threads(), _children(), _descriptors()
    yield
    deadline = time.monotonic() + END_LIMIT_S
    while True:
        left = [
            *(["a thread"] if count_threads() > threads else []),
            *(f"process {pid}" for pid in _children() - children),
            *(f"descriptor {fd}: {name}" for fd, name in _descriptors().items() if fd not in descriptors),
        ]
        if not left or time.monotonic() > deadline:
            break
        gc.collect()  # what is left may only wait for the garbage collector
        time.sleep(0.01)
    assert not left, f"left behind: {', '.join(left)}"
