# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names of chains, and of the ifb links of `bandwidth`."""

from cnm_bridge.driver.recovery.artifacts import chain_names, ifb_name


def test_ifb_names_are_unique() -> None:
    """They differ by container and network, and have 15 characters."""
    names = {ifb_name("lan", "77ad"), ifb_name("lan", "88be"), ifb_name("wan", "77ad")}
    assert [len(name) for name in names] == [15, 15, 15]


def test_chain_names_are_those_of_the_plugins() -> None:
    """They are as measured with plugins 1.1.1 and 1.9.1."""
    assert "CNI-e931cd072dedd5f9aad67ace" in chain_names("crash", "00000000003".ljust(64, "e"))
    published = "8b8c5d0597d1e7ffd97bf9768c2e77e8cff10fafbc56710b5f8905f752a61e4d"
    assert "CNI-DN-62ee68f9d29d8c692bdb5" in chain_names("lan", published)
