# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Differences that are faults, while they are being fixed: rows like those of the page, which may match nothing."""

from typing import Final

from tests.alike.differences import Row

__all__ = ["BEING_FIXED"]

_OWN_NAME: Final = "the container's own name is an IPv4-mapped address"
_NO_IPV6: Final = "the list's IPv6 address is added in spite of the sysctl"
_NO_IPV6_ON_LINK: Final = "an endpoint sysctl that disables IPv6 fails after the addresses were given"

BEING_FIXED: Final = tuple(
    map(
        Row.parse,
        (
            f"| `hosts: NET.*.own *` | `yes` | none | from Engine 28 | {_OWN_NAME} |",
            f"| `hosts: ::ffff:NET.*.own *` | none | `yes` | from Engine 28 | {_OWN_NAME} |",
            f"| `look-up of *` | `*` | `*::ffff:NET.*.own*` | from Engine 28 | {_OWN_NAME} |",
            f"| `reverse look-up of ::ffff:NET.*.own` | none | `*` | from Engine 28 | {_OWN_NAME} |",
            f"| `reverse look-up of NET.*.own` | `*` | `*` | from Engine 28 | {_OWN_NAME} |",
            f"| `reverse look-up of NET.*.own` | `*` | none | from Engine 28 | {_OWN_NAME} |",
            f"| `*` | `*` | `*` | `sysctl-ipv6-disabled` | {_NO_IPV6} |",
            f"| `refused` | `*` | `*` | `endpoint-without-ipv6` | {_NO_IPV6_ON_LINK} |",
        ),
    )
)
