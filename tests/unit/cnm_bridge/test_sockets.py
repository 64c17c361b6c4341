# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin socket is accessible to root only, and replaces a stale one, but no other file or live socket."""

import socket
from pathlib import Path

import pytest

from cnm_bridge.errors import Refused
from cnm_bridge.sockets import listening


def test_only_the_owner_can_connect(tmp_path: Path) -> None:
    """Every process that can connect could run plugins as root."""
    path = tmp_path / "plugins" / "cni-bridge.sock"
    with listening(path):
        assert path.stat().st_mode & 0o777 == 0o600
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
    assert not path.exists()


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    """After SIGKILL the socket's file still exists, and no process listens on it."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_a_live_socket_is_not_replaced(tmp_path: Path) -> None:
    """A second daemon is rejected, and the first one still answers."""
    path = tmp_path / "s"
    with listening(path):
        with pytest.raises(Refused, match="served by another process"), listening(path):
            pass
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))


def test_a_live_socket_with_a_full_backlog_is_not_replaced(tmp_path: Path) -> None:
    """A process that does not accept connections still owns the socket; the check does not block."""
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(Refused, match="served by another process"), listening(path):
            pass


def test_a_file_is_not_removed(tmp_path: Path) -> None:
    """A wrong path does not remove a file."""
    path = tmp_path / "precious"
    path.write_text("data")
    with pytest.raises(Refused, match="is not a socket"), listening(path):
        pass
    assert path.read_text() == "data"


def test_a_file_that_replaced_the_socket_is_not_removed(tmp_path: Path) -> None:
    """On exit only the daemon's own socket is removed."""
    path = tmp_path / "s"
    with listening(path):
        path.unlink()
        path.write_text("of another process")
    assert path.exists()
