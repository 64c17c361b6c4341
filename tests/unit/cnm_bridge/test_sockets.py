# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin socket is root's, replaces what a killed daemon left, and takes nobody else's place."""

import socket
from pathlib import Path

import pytest

from cnm_bridge.errors import Refused
from cnm_bridge.sockets import listening


def test_only_the_owner_can_connect(tmp_path: Path) -> None:
    """Whoever can connect can have plugins run as root."""
    path = tmp_path / "plugins" / "cni-bridge.sock"
    with listening(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_a_socket_left_behind_is_replaced(tmp_path: Path) -> None:
    """After SIGKILL the file is still there, and nobody listens."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_living_socket_is_left_alone(tmp_path: Path) -> None:
    """A second daemon does not take the first one's place."""
    path = tmp_path / "s"
    with listening(path):
        with pytest.raises(Refused, match="served by another process"), listening(path):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_living_socket_that_does_not_answer(tmp_path: Path) -> None:
    """A process that has stopped accepting still has its place, and finding out does not hang."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(Refused, match="served by another process"), listening(path):
            pass


def test_a_file_is_not_removed(tmp_path: Path) -> None:
    """A path given by mistake costs nobody a file."""
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(Refused, match="is no socket"), listening(path):
        pass
    assert path.read_text() == "data"


def test_a_socket_that_took_our_place_stays(tmp_path: Path) -> None:
    """At the end only the own socket is removed."""
    path = tmp_path / "s"
    with listening(path):
        path.unlink()
        path.write_text("another's")
    assert path.exists()
