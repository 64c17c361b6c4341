# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""MACs that the driver chooses. Requested values are tested as parts of a plan, in `test_plan.py`."""

import pytest

from cnm_bridge.planning.addressing import MAC_BYTES, local_mac


@pytest.mark.parametrize(
    ("octets", "mac"),
    [
        (bytes(MAC_BYTES), "02:00:00:00:00:00"),
        (b"\xff" * MAC_BYTES, "fe:ff:ff:ff:ff:ff"),
        (bytes.fromhex("0d0123456789"), "0e:01:23:45:67:89"),
    ],
)
def test_a_local_mac(octets: bytes, mac: str) -> None:
    """It is no multicast address and not one of a manufacturer; all other bits are those given."""
    assert local_mac(octets) == mac
