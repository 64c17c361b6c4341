# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker engines other than the machine's, for tests; `python -m tests.lab.fetch engines` fetches them.

They are Debian's own of other suites, dockerd with the client and the containerd of the same suite, in the cache that
`debian` describes. Their Go programs run on older machines; runc needs a newer libc there, so that the machine's own
runc serves all of them, as do its iptables and its `docker-init`. Engines that no suite has come from archives
(`given_engines`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.lab.debian import Unpacked, fetch_packages, find_packages, run_program
from tests.lab.given_engines import find_given_engine, given_archives, unpack_engine

Source = str | Path
"""A suite of Debian, or an archive."""

KIND: Final = "engines"
PACKAGES: Final = ("docker.io", "docker-cli", "containerd")
SUITES: Final = ("trixie", "sid")
NEWEST: Final = SUITES[-1]
PROGRAMS: Final = ("usr/sbin/dockerd", "usr/bin/docker", "usr/bin/containerd")
"""The unpacked programs that must run on this machine."""


def known_sources() -> Sequence[Source]:
    """Return the sources of engines, in the order of their versions.

    Raises:
        FetchError: The variable for archives does not name a directory.
    """
    return (*SUITES, *given_archives())


def find_fetched_engine(source: Source) -> Path | None:
    """Return the directory of the engine of a source that was fetched before, None if none was.

    Raises:
        FetchError: What was fetched does not run on this machine.
    """
    if isinstance(source, Path):
        return find_given_engine(source, KIND)
    found = find_packages(KIND, source)
    if found is None:
        return None
    _check(found)
    return found.directory


def fetch_engine(source: Source) -> Path:
    """Fetch the engine of a source; after a failure what was fetched before is kept.

    Raises:
        FetchError: It could not be fetched, or does not run on this machine.
    """
    if isinstance(source, Path):
        return unpack_engine(source, KIND, find_fetched_engine(NEWEST) or fetch_engine(NEWEST))
    return fetch_packages(KIND, source, PACKAGES, check=_check).directory


def _check(unpacked: Unpacked) -> None:
    """Run its programs, to see that their libraries are not missing or too old."""
    for program in PROGRAMS:
        run_program(str(unpacked.directory / program), "--version")
