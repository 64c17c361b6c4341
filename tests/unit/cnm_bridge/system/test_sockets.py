# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The sockets are accessible to root only, and replace a stale one, but no other file or live socket."""

import socket
from pathlib import Path

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.system.sockets import listening, metrics_listener, open_sockets


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


def test_both_sockets_are_opened(tmp_path: Path) -> None:
    """Without systemd; the admin socket is in the run directory unless a setting says otherwise."""
    settings = Settings(socket=tmp_path / "plugin.sock", run_dir=tmp_path / "run")
    with open_sockets(settings) as sockets:
        found = [sock.getsockname() for sock in (sockets.plugin, sockets.admin)]
        assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
    assert found == [f"{tmp_path}/plugin.sock", f"{tmp_path}/run/admin.sock"]


def test_an_error_names_the_setting_of_the_socket(tmp_path: Path) -> None:
    """The admin socket has one of its own."""
    settings = Settings(socket=tmp_path / "plugin.sock", admin_socket=tmp_path / "file")
    (tmp_path / "file").write_text("data")
    with pytest.raises(Refused, match="--admin-socket"), open_sockets(settings):
        pass


@pytest.mark.parametrize("name", ["plugin", "cni-bridge.socket", ""])
def test_the_socket_of_another_name_is_the_plugin_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Units of earlier versions set no name of the descriptor; only `admin` is the admin socket."""
    with socket.socket(socket.AF_UNIX) as given, socket.socket(socket.AF_UNIX) as admin:
        given.bind(str(tmp_path / "given"))
        admin.bind(str(tmp_path / "admin"))
        monkeypatch.setattr("cnm_bridge.system.sockets.take_sockets", lambda: {"admin": admin, name: given})
        with open_sockets(Settings(socket=tmp_path / "unused", run_dir=tmp_path)) as sockets:
            assert (sockets.plugin, sockets.admin) == (given, admin)
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(("address", "link"), [("127.0.0.1", b"lo"), ("[::1]", b"lo"), ("0.0.0.0", b"")])
def test_a_loopback_address_is_bound_to_its_link(address: str, link: bytes) -> None:
    """What comes through another link cannot connect; any other address takes connections from all links."""
    with metrics_listener(Settings(metrics_listen=f"{address}:0")) as listener:
        assert listener is not None
        assert listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0") == link


def test_a_port_in_use_is_named() -> None:
    """The error names the address and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Refused, match=rf"127\.0\.0\.1 port {port}: Address already in use; set --metrics-listen"),
            metrics_listener(Settings(metrics_listen=f"127.0.0.1:{port}")),
        ):
            pass
