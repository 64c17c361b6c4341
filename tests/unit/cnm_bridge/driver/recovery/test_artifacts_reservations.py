# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reservations of host-local, and other files in their directory."""

import fcntl
from pathlib import Path

import pytest

from cnm_bridge.driver.recovery.artifacts import PluginArtifact, Reservations, find_reservations, remove_unwritten


@pytest.fixture(name="network")
def make_network(tmp_path: Path) -> Path:
    """The directory of the network `lan`, with the lock."""
    network = tmp_path / "lan"
    network.mkdir()
    (network / "lock").touch()
    return network


def test_reservations_are_found(tmp_path: Path, network: Path) -> None:
    """Each file is an address; lock, last address and unknown files are skipped, and an empty file has no owner."""
    (network / "10.1.2.3").write_text("77ad\r\neth0")
    (network / "fd00::3").write_text("77ad\r\neth0")
    (network / "10.1.2.4").write_text("88be")
    (network / "10.1.2.5").write_text("")
    (network / "10.1.2.6").write_bytes(b"\xff\xfe")
    (network / "last_reserved_ip.0").write_text("")
    assert find_reservations(tmp_path, "lan") == Reservations(
        owned=tuple(
            PluginArtifact(network="lan", container_id=container, what=str(network / address), address=address)
            for address, container in (("10.1.2.3", "77ad"), ("10.1.2.4", "88be"), ("fd00::3", "77ad"))
        ),
        unwritten=(network / "10.1.2.5",),
    )


def test_a_network_without_reservations(tmp_path: Path) -> None:
    """A network whose directory does not exist has no reservations."""
    assert find_reservations(tmp_path, "lan") == Reservations()


def test_empty_reservations_are_removed(network: Path) -> None:
    """Their host-local was killed. A file that another host-local has written or removed meanwhile is skipped."""
    empty, written, removed = network / "10.1.2.3", network / "10.1.2.4", network / "10.1.2.5"
    empty.touch()
    written.write_text("77ad\r\neth0")
    assert [remove_unwritten(file) for file in (empty, written, removed)] == [True, False, False]
    assert sorted(file.name for file in network.iterdir()) == ["10.1.2.4", "lock"]


def test_an_empty_reservation_is_kept_while_a_plugin_holds_the_lock(network: Path) -> None:
    """That host-local may be about to write it."""
    file = network / "10.1.2.3"
    file.touch()
    with (network / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not remove_unwritten(file)
    assert remove_unwritten(file)
