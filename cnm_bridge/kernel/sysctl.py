# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Settings of the network namespace that the calling thread is in: /proc/sys/net shows each thread its own."""

import os
from typing import Final

__all__ = ["has_ipv6", "write_ipv6"]

_IPV6: Final = "/proc/sys/net/ipv6"


def has_ipv6() -> bool:
    """Tell whether the kernel has IPv6 at all (it has not with `ipv6.disable=1`)."""
    return os.access(_IPV6, os.F_OK)


def write_ipv6(scope: str, setting: str, value: int) -> None:
    """Set `net.ipv6.conf.<scope>.<setting>`; the scope is a link, `default` or `all`.

    Raises:
        OSError: Names the file.
    """
    fd = os.open(f"{_IPV6}/conf/{scope}/{setting}", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, str(value).encode())
    finally:
        os.close(fd)
