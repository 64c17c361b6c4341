# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.fetch_plugins`: fetches newer CNI plugins than the machine's; nothing is installed."""

import argparse
import sys
from collections.abc import Sequence

from tests.lab.debian import FetchError
from tests.lab.fetched_plugins import DEFAULT_SUITE, PACKAGE, fetch_plugins, find_fetched_plugins


def main(arguments: Sequence[str]) -> int:
    """Fetch the plugins unless they were fetched before, and print their directory."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab.fetch_plugins",
        description=f"Fetch Debian's {PACKAGE} of another suite into the cache; nothing is installed.",
    )
    parser.add_argument("--suite", default=DEFAULT_SUITE, help="default: %(default)s")
    parser.add_argument("--refresh", action="store_true", help="ask the mirror even if some have been fetched before")
    options = parser.parse_args(arguments)
    try:
        found = None if options.refresh else find_fetched_plugins(options.suite)
        plugins = found or fetch_plugins(options.suite)
    except FetchError as exc:
        print(f"{PACKAGE} of {options.suite} cannot be had: {exc}", file=sys.stderr)
        return 1
    print(f"{PACKAGE} {plugins.version} (CNI up to {plugins.cni_versions[-1]}): {plugins.directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
