# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""host-local's files, as it writes them, and what else lies there."""

from pathlib import Path

from cnm_bridge.recovery.artifacts import PluginArtifact, find_reservations


def test_reservations(tmp_path: Path) -> None:
    """One file is one address; lock, last address, empty and foreign files are none."""
    network = tmp_path / "lan"
    network.mkdir()
    (network / "10.1.2.3").write_text("77ad\r\neth0")
    (network / "fd00::3").write_text("77ad\r\neth0")
    (network / "10.1.2.4").write_text("88be")
    (network / "10.1.2.5").write_text("")
    (network / "10.1.2.6").write_bytes(b"\xff\xfe")
    (network / "lock").write_text("")
    (network / "last_reserved_ip.0").write_text("10.1.2.4")
    assert find_reservations(tmp_path, "lan") == tuple(
        PluginArtifact(network="lan", container_id=container, what=str(network / address), address=address)
        for address, container in (("10.1.2.3", "77ad"), ("10.1.2.4", "88be"), ("fd00::3", "77ad"))
    )


def test_a_network_without_reservations(tmp_path: Path) -> None:
    """No directory is no reservation."""
    assert find_reservations(tmp_path, "lan") == ()
