# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where other CNI runtimes on this host cache their attachments, in libcni's layout."""

from pathlib import Path
from typing import Final

__all__ = ["CACHE_DIRECTORIES"]

CACHE_DIRECTORIES: Final = (Path("/var/lib/cni"), Path("/var/lib/cni/cache"))
"""cnitool, containerd, Podman and nerdctl use libcni's default; cri-dockerd has the other one."""
