# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The programs that a lab needs, and their packages."""

import os
import shutil
from pathlib import Path
from typing import Final

from tests.lab.errors import LabError, MissingPrograms

SYSTEMD: Final = "/lib/systemd/systemd"

CNI_BIN_DIRS: Final = ("/opt/cni/bin", "/usr/lib/cni")
# Debian's own directories first: a docker command of another version elsewhere on the machine may use another API than
# the lab's dockerd. Root's directories are included, which a shell from plain `su` lacks.
SEARCH_PATH: Final = ":".join(("/usr/sbin:/usr/bin:/sbin:/bin", os.environ.get("PATH", os.defpath)))

_KERNEL: Final = {"mount": "mount", "unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2"}
_DOCKER: Final = {
    "dockerd": "docker.io",
    "docker": "docker.io",
    "containerd": "containerd",
    "runc": "runc",
    "iptables-save": "iptables",
    "busybox": "busybox-static",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}


def require(*, dockerd: bool) -> None:
    """Check that a lab can be made on this machine.

    Raises:
        LabError: Not root.
        MissingPrograms: Names every program that is missing, and the packages to install.
    """
    if os.geteuid() != 0:
        raise LabError("a lab needs root: it makes namespaces and mounts, and starts dockerd")
    wanted = _KERNEL | _DOCKER if dockerd else _KERNEL
    missing = {program: package for program, package in wanted.items() if not _is_there(program)}
    if missing:
        raise MissingPrograms(tuple(missing), tuple(dict.fromkeys(missing.values())))


def require_systemd() -> None:
    """Check that systemd can be run in a lab.

    Raises:
        MissingPrograms: It is not installed.
    """
    if not _is_there(SYSTEMD):
        raise MissingPrograms((SYSTEMD,), ("systemd",))


def _is_there(program: str) -> bool:
    return Path(program).exists() if program.startswith("/") else shutil.which(program, path=SEARCH_PATH) is not None
