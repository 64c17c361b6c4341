# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.fetch_compose`: docker compose, for tests; nothing is installed.

It is Debian's own of another suite, in the cache that `debian` describes: this machine's suite may have none, or one
without the options of a service's networks.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.lab.debian import FetchError, Unpacked, fetch_packages, find_packages, run_program

__all__ = ["FetchError", "fetch_compose", "find_fetched_compose", "main"]

KIND: Final = "compose"
PACKAGE: Final = "docker-compose"
DEFAULT_SUITE: Final = "sid"
_PROGRAM: Final = Path("usr/libexec/docker/cli-plugins/docker-compose")


def find_fetched_compose(suite: str = DEFAULT_SUITE) -> Path | None:
    """Return the program that was fetched before, None if none was.

    Raises:
        FetchError: What was fetched does not run on this machine.
    """
    found = find_packages(KIND, suite)
    if found is None:
        return None
    _version(found)
    return found.directory / _PROGRAM


def fetch_compose(suite: str = DEFAULT_SUITE) -> Path:
    """Fetch the program of a Debian suite; after a failure what was fetched before is kept.

    Raises:
        FetchError: It could not be fetched, or does not run on this machine.
    """
    return fetch_packages(KIND, suite, (PACKAGE,), check=_version).directory / _PROGRAM


def main(arguments: Sequence[str]) -> int:
    """Fetch the program unless it was fetched before, and print its path."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.fetch_compose",
        description=f"Fetch Debian's {PACKAGE} of another suite into the cache; nothing is installed.",
    )
    parser.add_argument("--suite", default=DEFAULT_SUITE, help="default: %(default)s")
    parser.add_argument("--refresh", action="store_true", help="ask the mirror even if some has been fetched before")
    options = parser.parse_args(arguments)
    try:
        program = (None if options.refresh else find_fetched_compose(options.suite)) or fetch_compose(options.suite)
    except FetchError as exc:
        print(f"{PACKAGE} of {options.suite} cannot be had: {exc}", file=sys.stderr)
        return 1
    print(f"{run_program(str(program), 'version').strip()}: {program}")
    return 0


def _version(unpacked: Unpacked) -> str:
    """Return the program's version, which shows that it runs on this machine."""
    return run_program(str(unpacked.directory / _PROGRAM), "version")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
