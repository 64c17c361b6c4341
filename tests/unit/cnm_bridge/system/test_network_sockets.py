# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The addresses that the daemon listens at besides its socket: other hosts need a certificate."""

import socket
import subprocess
from pathlib import Path

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.system.network_sockets import TcpAddress, metrics_listener, network_listeners
from tests.certificates import certificates_script


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://127.0.0.1:7654", TcpAddress("127.0.0.1", 7654, tls=False)),
        ("tcp://[::1]:7654", TcpAddress("::1", 7654, tls=False)),
        ("https://0.0.0.0:7654", TcpAddress("0.0.0.0", 7654, tls=True)),
    ],
)
def test_addresses(text: str, expected: TcpAddress) -> None:
    """A loopback address needs no TLS."""
    assert TcpAddress.parse(text) == expected


@pytest.mark.parametrize("text", ["tcp://0.0.0.0:7654", "tcp://10.0.0.1:7654", "tcp://[::]:7654"])
def test_other_hosts_need_tls(text: str) -> None:
    """The error says which address would do."""
    with pytest.raises(Refused, match=r"would let other hosts run plugins as root; .* https://.*client certificates"):
        TcpAddress.parse(text)


@pytest.mark.parametrize(
    "text",
    ["", "127.0.0.1:1", "unix:///x", "tcp://127.0.0.1", "tcp://localhost:1", "tcp://127.0.0.1:70000", "tcp://[:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    """A name could change what it means, so the address must be a number."""
    with pytest.raises(Refused, match="IP address"):
        TcpAddress.parse(text)


@pytest.mark.parametrize(("address", "link"), [("127.0.0.1", b"lo"), ("[::1]", b"lo"), ("0.0.0.0", b"")])
def test_a_loopback_address_is_bound_to_its_link(address: str, link: bytes) -> None:
    """What comes through another link cannot connect; any other address takes connections from all links."""
    with metrics_listener(Settings(metrics_listen=f"{address}:0")) as listener:
        assert listener is not None
        assert listener.sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\0") == link


def test_a_port_in_use_is_named() -> None:
    """The error names the address and the option."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(Refused, match=rf"127\.0\.0\.1 port {port}: Address already in use; set --listen"),
            network_listeners(Settings(listen=(f"tcp://127.0.0.1:{port}",))),
        ):
            pass


def test_missing_certificates_are_named(tmp_path: Path) -> None:
    """The error names the files and the options, before anything listens."""
    settings = Settings(listen=("https://127.0.0.1:0",), tls_cert=tmp_path / "cert.pem", tls_key=tmp_path / "key.pem")
    with pytest.raises(Refused, match=r"cert\.pem .*No such file or directory; set --tls-cert and --tls-key"):
        network_listeners(settings).__enter__()


@pytest.mark.parametrize("authority", ["missing.pem", "daemon-key.pem"])
def test_tls_without_client_certificates_is_refused(tmp_path: Path, authority: str) -> None:
    """Without the authority that signs them every client could run plugins; the error says so, and nothing listens."""
    subprocess.run(("sh", "-euc", certificates_script("daemon", "docker")), cwd=tmp_path, check=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = Settings(
        listen=(f"https://127.0.0.1:{port}",),
        tls_cert=tmp_path / "daemon.pem",
        tls_key=tmp_path / "daemon-key.pem",
        tls_ca=tmp_path / authority,
    )
    text = rf"{authority} .*that signs the certificates of clients.*; set --tls-ca"
    with pytest.raises(Refused, match=text), network_listeners(settings):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
