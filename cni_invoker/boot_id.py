# SPDX-License-Identifier: Apache-2.0
"""The kernel's boot ID."""

from functools import cache
from pathlib import Path
from typing import Final

_FILE: Final = Path("/proc/sys/kernel/random/boot_id")


@cache
def read_boot_id() -> str:
    """Return the kernel's boot ID. Neither processes nor namespaces survive a reboot."""
    return _FILE.read_text("ascii").strip()
