# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Calls of a driver that a spec file describes with TLS: both sides have certificates, and verify them."""

import http.server
import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cni_plugin import CallError, ErrorCode
from cnm_plugin.driver import Driver, find_driver
from tests.certificates import certificates_script


@pytest.fixture(name="certificates", scope="module")
def make_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of certificates and keys: of an authority, a driver and its client, and of another authority."""
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(
        ["sh", "-ec", certificates_script("driver", "client")], cwd=directory, check=True, capture_output=True
    )
    return directory


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers every call."""

    def do_POST(self) -> None:
        """Answer a call."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"Value": {}}')

    def log_message(self, *_: object) -> None:
        """Print nothing."""


class Server(http.server.ThreadingHTTPServer):
    """Prints nothing about a client that it refuses."""

    def handle_error(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def serving(certificates: Path) -> Iterator[int]:
    """A driver that accepts clients of its authority only; gives its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "driver.pem", certificates / "driver-key.pem")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def find(directory: Path, port: int, certificates: Path, *, ca: str, cert: str = "", skip: bool = False) -> Driver:
    """The driver that a spec file describes."""
    tls = {"CAFile": str(certificates / f"{ca}.pem"), "InsecureSkipVerify": skip}
    if cert:
        tls |= {"CertFile": str(certificates / f"{cert}.pem"), "KeyFile": str(certificates / f"{cert}-key.pem")}
    spec = {"Name": "other", "Addr": f"https://127.0.0.1:{port}", "TLSConfig": tls}
    (directory / "other.json").write_text(json.dumps(spec), "utf-8")
    return Driver("other", find_driver("other", sockets=directory / "none", specs=(directory,)))


def test_both_sides_verify(certificates: Path, tmp_path: Path) -> None:
    """A client with the authority's certificate is answered; so is one whose spec file skips verification."""
    with serving(certificates) as port:
        assert find(tmp_path, port, certificates, ca="ca", cert="client").call("Join", {}) == {"Value": {}}
        trusting = find(tmp_path, port, certificates, ca="stranger", cert="client", skip=True)
        assert trusting.call("Join", {}) == {"Value": {}}


@pytest.mark.parametrize(("ca", "cert"), [("ca", ""), ("ca", "intruder"), ("stranger", "client")])
def test_strangers(certificates: Path, tmp_path: Path, ca: str, cert: str) -> None:
    """A client or a driver of another authority is refused; the runtime may try again."""
    with serving(certificates) as port, pytest.raises(CallError, match="does not answer") as caught:
        find(tmp_path, port, certificates, ca=ca, cert=cert).call("Join", {})
    assert caught.value.code == ErrorCode.TRY_AGAIN_LATER


@pytest.mark.parametrize(("ca", "cert", "named"), [("ca", "none", "none.pem with key"), ("none", "", "none.pem")])
def test_a_file_that_is_missing(certificates: Path, tmp_path: Path, ca: str, cert: str, named: str) -> None:
    """The error names the file, and nothing is sent."""
    with pytest.raises(CallError, match=f"TLS files that cannot be used: .*{named}") as caught:
        find(tmp_path, 1, certificates, ca=ca, cert=cert).call("Join", {})
    assert caught.value.code == ErrorCode.INVALID_CONFIGURATION


def test_a_key_of_another_certificate(certificates: Path, tmp_path: Path) -> None:
    """It is no bug of the plugin either."""
    spec = {"CAFile": str(certificates / "ca.pem"), "CertFile": str(certificates / "client.pem")}
    spec["KeyFile"] = str(certificates / "driver-key.pem")
    (tmp_path / "other.json").write_text(json.dumps({"Addr": "https://127.0.0.1:1", "TLSConfig": spec}), "utf-8")
    driver = Driver("other", find_driver("other", sockets=tmp_path / "none", specs=(tmp_path,)))
    with pytest.raises(CallError, match="TLS files that cannot be used"):
        driver.activate()
