# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`python -m tests.lab.fetch_etcd`: this Debian's etcd, for tests; nothing is installed.

It is unpacked into the cache that `debian` describes.
"""

import platform
import sys
from pathlib import Path
from typing import Final

from tests.lab.debian import FetchError, Unpacked, fetch_packages, find_packages, run_program

__all__ = ["FetchError", "fetch_etcd"]

_KIND: Final = "etcd"


def fetch_etcd() -> Path:
    """Return the server that was fetched before, else fetch it.

    Raises:
        FetchError: It cannot be fetched, or does not run on this machine.
    """
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    found = find_packages(_KIND, suite) or fetch_packages(_KIND, suite, ("etcd-server",), check=_check)
    return _check(found)


def _check(unpacked: Unpacked) -> Path:
    server = unpacked.directory / "usr/bin/etcd"
    run_program(str(server), "--version")
    return server


if __name__ == "__main__":
    try:
        print(fetch_etcd())
    except FetchError as exc:
        sys.exit(f"etcd cannot be had: {exc}")
