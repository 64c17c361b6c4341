# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds a driver, by its socket or a spec file, and calls it over HTTP, as dockerd does (moby, `pkg/plugins`)."""

import socket
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    as_object,
    find_object,
    find_str,
    get_bool,
    get_str,
    get_strings,
    parse_json,
    render_json,
)
from cni_plugin import CallError, ErrorCode
from cnm_plugin.http import post

if TYPE_CHECKING:
    import ssl

__all__ = ["REFUSED", "SOCKETS", "SPECS", "Driver", "DriverAddress", "Refusal", "Tls", "find_driver"]

SOCKETS: Final = Path("/run/docker/plugins")
SPECS: Final = (Path("/etc/docker/plugins"), Path("/usr/lib/docker/plugins"))

REFUSED: Final = 100
"""The code of an error with which the driver has answered."""

_TIMEOUT_S: Final = 120.0  # dockerd has none; a CNI runtime kills the plugin before
_OK: Final = 200
_NOT_FOUND: Final = 404


class Tls(NamedTuple):
    """Files in PEM form, each possibly empty.

    Attributes:
        ca: The authority of the driver's certificate. Without one the certificate is not verified, as in dockerd.
        cert: The client's certificate.
        key: Its private key.
        verify: Whether the driver's certificate is verified.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    verify: bool = False


class DriverAddress(NamedTuple):
    """Where a driver answers: at a Unix socket, or at a TCP port.

    Attributes:
        path: The socket; empty for TCP.
        host: The host; empty for a Unix socket.
        port: The port.
        tls: How TCP is protected; None: not at all.
    """

    path: str = ""
    host: str = ""
    port: int = 0
    tls: Tls | None = None

    def __str__(self) -> str:
        if self.path:
            return f"unix://{self.path}"
        return f"{'tcp' if self.tls is None else 'https'}://{self.host}:{self.port}"


def find_driver(name: str, sockets: Path = SOCKETS, specs: tuple[Path, ...] = SPECS) -> DriverAddress:
    """Return where the driver called `name` answers.

    Args:
        name: Its name, as for `docker network create -d`.
        sockets: The directory of sockets.
        specs: The directories of spec files; the first one that has it wins.

    Raises:
        CallError: There is no such driver (code 50), or its spec file is invalid (code 7).
    """
    if not name or "/" in name or name.startswith("."):
        raise CallError(ErrorCode.INVALID_CONFIGURATION, f"driver {name!r} is not the name of a driver")
    for place in (sockets / f"{name}.sock", sockets / name / f"{name}.sock"):
        if _is_socket(place):
            return DriverAddress(path=str(place))
    for directory in specs:
        for file in (
            directory / f"{name}.spec",
            directory / name / f"{name}.spec",
            directory / f"{name}.json",
            directory / name / f"{name}.json",
        ):
            if file.is_file():
                return _read_spec(file)
    searched = ", ".join(map(str, (sockets, *specs)))
    raise CallError(ErrorCode.NOT_AVAILABLE, f"there is no Docker network driver {name}", f"searched in {searched}")


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.stat().st_mode)
    except OSError:
        return False


def _read_spec(file: Path) -> DriverAddress:
    try:
        content = file.read_bytes()
        if file.suffix == ".spec":
            return _parse_url(content.decode().strip(), Tls())
        document = as_object(parse_json(content), "it")
        return _parse_url(get_str(document, "Addr"), _parse_tls(find_object(document, "TLSConfig") or {}))
    except (OSError, ValueError, JsonError) as exc:
        raise CallError(ErrorCode.INVALID_CONFIGURATION, f"the driver's spec file {file} is invalid: {exc}") from exc


def _parse_tls(tls: JsonObject) -> Tls:
    ca = find_str(tls, "CAFile") or ""
    return Tls(
        ca=ca,
        cert=find_str(tls, "CertFile") or "",
        key=find_str(tls, "KeyFile") or "",
        verify=bool(ca) and not get_bool(tls, "InsecureSkipVerify"),
    )


def _parse_url(url: str, tls: Tls) -> DriverAddress:
    """Parse an address; only `https` means TLS (moby, `pkg/plugins/client.go`, `httpScheme`)."""
    parts = urlsplit(url)
    if parts.scheme == "unix" and not parts.netloc and parts.path.startswith("/"):
        return DriverAddress(path=parts.path)
    if parts.scheme in {"tcp", "http", "https"} and parts.hostname and parts.port:
        return DriverAddress(host=parts.hostname, port=parts.port, tls=tls if parts.scheme == "https" else None)
    raise ValueError(f"{url!r} is not of the form unix:///PATH, tcp://HOST:PORT or https://HOST:PORT")


class Refusal(CallError):
    """A driver has answered with an error.

    Attributes:
        reason: The driver's own words.
    """

    def __init__(self, driver: str, method: str, reason: str) -> None:
        super().__init__(REFUSED, f"driver {driver} refuses {method}: {reason}")
        self.reason = reason


class Driver:
    """A Docker network driver.

    Args:
        name: Its name, for errors.
        address: Where it answers.
    """

    def __init__(self, name: str, address: DriverAddress) -> None:
        self.name = name
        self.address = address

    def activate(self) -> None:
        """Make sure that it is a network driver: the handshake that dockerd makes once per process.

        Raises:
            CallError: It does not answer, or it is another kind of plugin.
        """
        if "NetworkDriver" not in get_strings(self._post("/Plugin.Activate", None), "Implements"):
            raise CallError(ErrorCode.NOT_AVAILABLE, f"{self.name} at {self.address} is not a network driver")
        self.call("GetCapabilities", None)

    def call(self, method: str, body: JsonObject | None, *, optional: bool = False) -> JsonObject:
        """Make a NetworkDriver call and return the reply.

        Args:
            method: Its name, e.g. `Join`.
            body: Its body.
            optional: A driver need not have the method: 404 means that it has nothing to do.

        Raises:
            Refusal: The driver has answered with an error (code 100).
            CallError: It does not answer (code 11).
        """
        return self._post(f"/NetworkDriver.{method}", body, optional=optional)

    def _post(self, path: str, body: JsonObject | None, *, optional: bool = False) -> JsonObject:
        try:
            with _connect(self.address) as connection:
                status, content = post(connection, path, b"" if body is None else render_json(body) + b"\n")
        except OSError as exc:
            what = f"driver {self.name} at {self.address} does not answer {path[1:]}"
            raise CallError(ErrorCode.TRY_AGAIN_LATER, what, str(exc) or type(exc).__name__) from exc
        if status == _NOT_FOUND and optional:
            return {}
        return self._parse(path[1:], status, content)

    def _parse(self, method: str, status: int, content: bytes) -> JsonObject:
        try:
            document = parse_json(content)
            reply = {} if document is None else as_object(document, "it")
            error = find_str(reply, "Err")
        except JsonError as exc:
            error = content.decode("utf-8", "replace")[:500].strip() if status != _OK else f"no JSON object: {exc}"
        if error or status != _OK:
            raise Refusal(self.name, method, error or f"HTTP status {status}")
        return reply


def _connect(address: DriverAddress) -> socket.socket:
    if address.path:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(address.path)
        except OSError:
            connection.close()
            raise
        return connection
    context = None if address.tls is None else _load_files(address.tls)
    connection = socket.create_connection((address.host, address.port), _TIMEOUT_S)
    return connection if context is None else context.wrap_socket(connection, server_hostname=address.host)


def _load_files(tls: Tls) -> "ssl.SSLContext":
    """Return what verifies the driver, and what the driver verifies.

    Raises:
        CallError: A file is missing, or is not what the spec file says (code 7).
    """
    import ssl  # noqa: PLC0415  # few drivers use TLS, and the plugin starts anew for each call

    file = tls.ca
    try:
        context = ssl.create_default_context(cafile=file or None)
        if not tls.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if tls.cert:
            file = f"{tls.cert} with key {tls.key or 'in the same file'}"
            context.load_cert_chain(tls.cert, tls.key or None)
    except OSError as exc:  # ssl.SSLError is one
        what = f"the driver's spec file names TLS files that cannot be used: {file}"
        raise CallError(ErrorCode.INVALID_CONFIGURATION, what, exc.strerror or str(exc)) from exc
    return context
