# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.fetch_engines`: fetches Docker engines other than the machine's; nothing is installed."""

import argparse
import sys
from collections.abc import Sequence

from tests.lab.debian import FetchError, run_program
from tests.lab.fetched_engines import PROGRAMS, SUITES, fetch_engine, find_fetched_engine, known_sources
from tests.lab.given_engines import VARIABLE


def main(arguments: Sequence[str]) -> int:
    """Fetch the missing engines, and print their directories; return 1 if one could not be fetched."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.fetch_engines",
        description="Fetch Debian's Docker engines of other suites into the cache; nothing is installed.",
    )
    parser.add_argument(
        "--suite", action="append", help=f"may be repeated; default: {', '.join(SUITES)}, and what {VARIABLE} has"
    )
    parser.add_argument("--refresh", action="store_true", help="ask the mirror even if some have been fetched before")
    options = parser.parse_args(arguments)
    try:
        sources = options.suite or known_sources()
    except FetchError as exc:
        print(exc, file=sys.stderr)
        return 1
    failed = False
    for source in sources:
        try:
            directory = (None if options.refresh else find_fetched_engine(source)) or fetch_engine(source)
        except FetchError as exc:
            print(f"the engine of {source} cannot be had: {exc}", file=sys.stderr)
            failed = True
        else:
            version = run_program(str(directory / PROGRAMS[0]), "--version").strip()
            print(f"{version} ({source}): {directory}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
