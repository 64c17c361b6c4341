# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names of the links that `bandwidth` makes."""

import pytest

from cnm_bridge.traces import ifb_name, is_ifb_name, noted_ifb_names


def test_a_name_fits_the_kernel() -> None:
    """Of each container and network another; one that the plugin would make is told from others."""
    names = {ifb_name("lan", "77ad"), ifb_name("lan", "88be"), ifb_name("wan", "77ad")}
    assert len(names) == 3
    assert all(is_ifb_name(name) and len(name) == 15 for name in names)
    assert not any(map(is_ifb_name, ["bwp0", "ifb0", "bwp0123456789AB", "xbwp0123456789ab"]))


@pytest.mark.parametrize(
    ("file", "network", "container_id"),
    [("lan-77ad-eth0", "lan", "77ad"), ("my-lan-77ad-eth0", "my-lan", "77ad"), ("lan-cni-1-net-0", "lan", "cni-1")],
)
def test_what_libcni_has_noted(file: str, network: str, container_id: str) -> None:
    """Wherever the parts end."""
    assert ifb_name(network, container_id) in noted_ifb_names([file])


def test_what_is_no_note() -> None:
    """It tells of nobody."""
    assert noted_ifb_names(["lan", "lan-77ad", ""]) == set()
