# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.fetch engines plugins compose etcd prometheus`: parts of a lab; nothing is installed.

They are Debian's own, in the cache that `debian` describes: engines and plugins of other suites than the machine's,
etcd and Prometheus of its own, docker compose of another one, because the machine's may have none, or one without the
options of a service's networks.
"""

import argparse
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from tests.lab.debian import FetchError, Unpacked, fetch_packages, find_packages, run_program
from tests.lab.fetched_engines import fetch_engine, find_fetched_engine, known_sources
from tests.lab.fetched_plugins import fetch_plugins, find_fetched_plugins


@dataclass(frozen=True, slots=True, kw_only=True)
class _Program:
    """A program.

    Attributes:
        package: Its package.
        path: Where it is.
        asked: The argument with which it prints its version, which shows that it runs on this machine.
        suite: Its suite; this machine's if there is none.
    """

    package: str
    path: str
    asked: str = "--version"
    suite: str = ""


_PROGRAMS: Final[Mapping[str, _Program]] = {
    "compose": _Program(
        package="docker-compose",
        path="usr/libexec/docker/cli-plugins/docker-compose",
        asked="version",
        suite="sid",
    ),
    "etcd": _Program(package="etcd-server", path="usr/bin/etcd"),
    "prometheus": _Program(package="prometheus", path="usr/bin/prometheus"),
}


def find_program(name: str) -> Path | None:
    """Return a program that was fetched before, None if it was not.

    Raises:
        FetchError: It does not run on this machine.
    """
    found = find_packages(name, _suite(name))
    return None if found is None else _check(name, found)


def fetch_program(name: str) -> Path:
    """Return a program that was fetched before, else fetch it; after a failure what was fetched before is kept.

    Raises:
        FetchError: It cannot be fetched, or does not run on this machine.
    """
    return find_program(name) or _fetch(name)


def main(arguments: Sequence[str]) -> int:
    """Fetch what was not fetched before, and print where it is; return 1 if something could not be fetched."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab.fetch", description=__doc__)
    parser.add_argument("names", nargs="+", choices=("engines", "plugins", *_PROGRAMS))
    parser.add_argument("--refresh", action="store_true", help="ask the mirror even if some have been fetched before")
    options = parser.parse_args(arguments)
    failed = False
    for what, find, fetch in (ways for name in options.names for ways in _ways(name)):
        try:
            print(f"{what}: {(None if options.refresh else find()) or fetch()}")
        except FetchError as exc:
            print(f"{what} cannot be had: {exc}", file=sys.stderr)
            failed = True
    return 1 if failed else 0


def _ways(name: str) -> Iterator[tuple[str, Callable[[], object], Callable[[], object]]]:
    """Yield what has a name, with the functions that find and fetch it."""
    if name == "engines":
        for source in known_sources():
            yield f"the engine of {source}", partial(find_fetched_engine, source), partial(fetch_engine, source)
    elif name == "plugins":
        yield name, find_fetched_plugins, fetch_plugins
    else:
        yield name, partial(find_program, name), partial(_fetch, name)


def _fetch(name: str) -> Path:
    packages = (_PROGRAMS[name].package,)
    return _check(name, fetch_packages(name, _suite(name), packages, check=lambda unpacked: _check(name, unpacked)))


def _suite(name: str) -> str:
    return _PROGRAMS[name].suite or platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def _check(name: str, unpacked: Unpacked) -> Path:
    program = unpacked.directory / _PROGRAMS[name].path
    run_program(str(program), _PROGRAMS[name].asked)
    return program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
