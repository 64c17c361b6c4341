# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The containers' file system: the machine's own busybox, so that a lab needs no registry."""

from pathlib import Path

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.connectivity.pair import busybox_tar
from tests.lab.errors import MissingPrograms

__all__ = ["image_tar"]


def image_tar(busybox: Path) -> bytes:
    """Return the file system as a tar.

    Raises:
        MissingPrograms: This busybox needs shared libraries.
    """
    try:
        return busybox_tar(busybox)
    except Refused as exc:
        raise MissingPrograms((str(exc),), ("busybox-static",)) from exc
