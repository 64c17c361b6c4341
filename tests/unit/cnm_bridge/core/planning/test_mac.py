# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""MACs that the driver makes. `test_plan.py` tests when it does, and what is refused."""

import pytest

from cnm_bridge.core.planning.mac import local_mac


@pytest.mark.parametrize(
    ("octets", "mac"),
    [
        (bytes(6), "02:00:00:00:00:00"),
        (b"\xff" * 6, "fe:ff:ff:ff:ff:ff"),
        (bytes.fromhex("0d0123456789"), "0e:01:23:45:67:89"),
    ],
)
def test_a_local_mac(octets: bytes, mac: str) -> None:
    """It is not a multicast address and not one of a manufacturer; all other bits are those given."""
    assert local_mac(octets) == mac
