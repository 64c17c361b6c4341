# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A registry in a lab, for installing and upgrading plugins: this Debian's, kept in the cache of `tests.lab.debian`."""

import platform
from pathlib import Path
from typing import Final

from tests.lab import Lab
from tests.lab.debian import Unpacked, fetch_packages, find_packages, run_program

_PORT: Final = 5000
REGISTRY: Final = f"127.0.0.1:{_PORT}"
"""Docker speaks HTTP with a registry on the loopback."""
_PACKAGE: Final = "docker-registry"
_SETTINGS: Final = f"""\
version: 0.1
storage: {{filesystem: {{rootdirectory: /var/lib/registry}}}}
http: {{addr: "{REGISTRY}"}}
"""


def start_registry(lab: Lab) -> None:
    """Start a registry, and wait until it listens.

    Raises:
        FetchError: Debian's package cannot be fetched.
        LabError: The registry does not start.
    """
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    program = _check(find_packages(_PACKAGE, suite) or fetch_packages(_PACKAGE, suite, (_PACKAGE,), check=_check))
    lab.write("/run/lab/registry.yml", _SETTINGS)
    registry = lab.spawn(str(program), "serve", "/run/lab/registry.yml")
    registry.wait_ready(lambda: lab.run("ss", "-Hltn", f"sport = :{_PORT}").stdout != "", 30)


def _check(unpacked: Unpacked) -> Path:
    program = unpacked.directory / "usr/bin/docker-registry"
    run_program(str(program), "--version")
    return program
