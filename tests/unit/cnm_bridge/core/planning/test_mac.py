# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""MACs that the driver makes. `test_plan.py` tests when it does, and what is refused."""

import pytest

from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.planning.mac import can_choose_mac, local_mac


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


@pytest.mark.parametrize(("plugin", "possible"), [("bridge", True), ("ipvlan", False), ("vlan", False), ("x", False)])
def test_links_whose_mac_may_be_chosen(plugin: str, *, possible: bool) -> None:
    """Others share the MAC of their parent, or are unknown."""
    network = NetworkConfigurationList.from_document({"name": "lan", "plugins": [{"type": plugin}]})
    assert can_choose_mac(network) is possible
