# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The Debian package for each release, built in a root directory of that release from what `make wheels` has built.

`python -m tests.install.packages` builds all of them, for a release of cni-bridge.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.install.machine import fetch_root
from tests.lab.debian import FetchError, run_program

_ROOT: Final = Path(__file__).parents[2]
RELEASES: Final = {"bookworm": "debian12", "trixie": "debian13", "noble": "ubuntu2404"}
"""The code names of the releases, and how the versions of their packages end."""
_SYSTEM: Final = (
    *("systemd", "systemd-sysv", "dbus", "docker.io", "containernetworking-plugins", "iptables", "busybox-static"),
    *("iproute2", "python3", "libleveldb1d", "kmod", "nftables"),
)
_DOCKER_COMMAND: Final = {"trixie": ("docker-cli",)}
"""From Debian 13 on the docker command is a package of its own."""
_BUILD: Final = (
    *("build-essential", "debhelper", "g++", "libleveldb-dev", "python3-dev", "python3-pip", "python3-setuptools"),
    *("python3-venv", "python3-wheel", "fakeroot"),
)


def fetch_system(suite: str) -> Path:
    """Return the archive of a minimal system of a release with Docker.

    Raises:
        FetchError: The release's packages cannot be had.
    """
    return fetch_root(suite, "system", (*_SYSTEM, *_DOCKER_COMMAND.get(suite, ())))


def build_package(suite: str) -> Path:
    """Build the package for a release, and return its path in `dist`.

    Raises:
        FetchError: The release's packages cannot be had.
        AssertionError: The package cannot be built; the message has the output.
    """
    archive = fetch_root(suite, "build", _BUILD)
    # Beside the archive, because /tmp may be too small.
    with tempfile.TemporaryDirectory(dir=archive.parent, prefix=f".{suite}-") as directory:
        root = Path(directory) / "root"
        root.mkdir()
        run_program("tar", "--extract", "--file", str(archive), "--directory", str(root))
        done = subprocess.run(
            (str(_ROOT / "packaging/build-deb"),),
            env={**os.environ, "ROOT": str(root)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (package,) = (_ROOT / "dist").glob(f"cni-bridge_*~{RELEASES[suite]}_*.deb")
    return package


def main() -> None:
    """Build the packages for all releases whose own packages can be had; standard error has the others."""
    for suite in RELEASES:
        try:
            print(build_package(suite).relative_to(_ROOT), flush=True)
        except FetchError as exc:
            print(f"there is no package for {suite}: {exc}", file=sys.stderr)


if __name__ == "__main__":
    main()
