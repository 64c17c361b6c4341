# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Calls a driver over HTTP, as dockerd's `pkg/plugins` does."""

import http.client
import socket
import ssl
from typing import Final

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    as_object,
    find_str,
    get_strings,
    parse_json,
    render_json,
)
from cni_invoker.plugin import CallError, ErrorCode
from cnm_plugin.address import DriverAddress, Tls

__all__ = ["REFUSED", "Driver", "Refusal"]

REFUSED: Final = 100
"""The code of an error with which the driver has answered."""

_TIMEOUT_S: Final = 120.0  # dockerd has none; a CNI runtime kills the plugin before
_HEADERS: Final = {"Accept": "application/vnd.docker.plugins.v1.2+json", "Host": "plugin.moby.localhost"}
_OK: Final = 200
_NOT_FOUND: Final = 404


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
        connection = _connect(self.address)
        try:
            connection.request("POST", path, b"" if body is None else render_json(body) + b"\n", _HEADERS)
            response = connection.getresponse()
            content = response.read()
        except (OSError, http.client.HTTPException) as exc:
            what = f"driver {self.name} at {self.address} does not answer {path[1:]}"
            raise CallError(ErrorCode.TRY_AGAIN_LATER, what, str(exc) or type(exc).__name__) from exc
        finally:
            connection.close()
        if response.status == _NOT_FOUND and optional:
            return {}
        return self._parse(path[1:], response.status, content)

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


def _connect(address: DriverAddress) -> http.client.HTTPConnection:
    if address.path:
        return _UnixConnection(address.path)
    if address.tls is None:
        return http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    context = _load_files(address.tls)
    return http.client.HTTPSConnection(address.host, address.port, timeout=_TIMEOUT_S, context=context)


def _load_files(tls: Tls) -> ssl.SSLContext:
    """Return what verifies the driver, and what the driver verifies.

    Raises:
        CallError: A file is missing, or is not what the spec file says (code 7).
    """
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


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(_TIMEOUT_S)
        self.sock.connect(self._path)
