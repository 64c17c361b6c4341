# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.fetch_prometheus`: this Debian's Prometheus, for tests; nothing is installed.

It is unpacked into the cache that `debian` describes.
"""

import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.lab.debian import FetchError, Unpacked, fetch_packages, find_packages, run_program

__all__ = ["FetchError", "Prometheus", "fetch_prometheus"]

_KIND: Final = "prometheus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """A Prometheus.

    Attributes:
        server: The server.
        promtool: The program that checks its files.
    """

    server: Path
    promtool: Path


def fetch_prometheus() -> Prometheus:
    """Return what was fetched before, else fetch it.

    Raises:
        FetchError: It cannot be fetched, or does not run on this machine.
    """
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    found = find_packages(_KIND, suite) or fetch_packages(_KIND, suite, (_KIND,), check=_check)
    return _check(found)


def _check(unpacked: Unpacked) -> Prometheus:
    programs = unpacked.directory / "usr/bin"
    found = Prometheus(server=programs / "prometheus", promtool=programs / "promtool")
    run_program(str(found.promtool), "--version")
    return found


if __name__ == "__main__":
    try:
        print(fetch_prometheus().server)
    except FetchError as exc:
        sys.exit(f"Prometheus cannot be had: {exc}")
