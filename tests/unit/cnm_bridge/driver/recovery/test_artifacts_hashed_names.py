# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names of chains, and of the ifb links of `bandwidth`."""

import pytest

from cnm_bridge.driver.recovery.artifacts import (
    chain_names,
    hashed_names,
    ifb_name,
    is_chain_name,
    is_ifb_name,
    names_for_cache_files,
)


def test_ifb_names_are_unique_and_recognised() -> None:
    """They differ by container and network, have 15 characters, and are distinguished from other names."""
    names = {ifb_name("lan", "77ad"), ifb_name("lan", "88be"), ifb_name("wan", "77ad")}
    assert len(names) == 3
    assert all(is_ifb_name(name) and len(name) == 15 for name in names)
    assert not any(map(is_ifb_name, ["bwp0", "ifb0", "bwp0123456789AB", "xbwp0123456789ab"]))


def test_chain_names_are_those_of_the_plugins() -> None:
    """They are as measured with plugins 1.1.1 and 1.9.1; chains shared by all containers are not recognised."""
    assert "CNI-e931cd072dedd5f9aad67ace" in chain_names("crash", "00000000003".ljust(64, "e"))
    published = "8b8c5d0597d1e7ffd97bf9768c2e77e8cff10fafbc56710b5f8905f752a61e4d"
    assert "CNI-DN-62ee68f9d29d8c692bdb5" in chain_names("lan", published)
    assert all(map(is_chain_name, chain_names("lan", "77ad")))
    assert not any(map(is_chain_name, ["CNI-HOSTPORT-DNAT", "CNI-FORWARD", "CNI-0123", "DOCKER", "CNI-DN-0123"]))


@pytest.mark.parametrize(
    ("file", "network", "container_id"),
    [("lan-77ad-eth0", "lan", "77ad"), ("my-lan-77ad-eth0", "my-lan", "77ad"), ("lan-cni-1-net-0", "lan", "cni-1")],
)
def test_the_names_of_cached_attachments_are_known(file: str, network: str, container_id: str) -> None:
    """Names of cache files are ambiguous, so every possible split is included."""
    assert hashed_names(network, container_id) <= names_for_cache_files([file])


def test_other_file_names_have_no_attachment() -> None:
    """Too few parts give no names."""
    assert names_for_cache_files(["lan", "lan-77ad", ""]) == set()
