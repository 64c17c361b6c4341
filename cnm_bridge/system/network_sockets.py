# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Listening TCP sockets: for a Docker that finds the driver through a plugin spec file, and for scrapes of metrics.

A client can run plugins as root. So another host can connect only with TLS and a certificate of our authority; without
TLS only this host can connect.
"""

import ipaddress
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.system.sockets import BACKLOG

if TYPE_CHECKING:
    import ssl


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """What the connections of a listener may take.

    Attributes:
        waiting: Maximum number of connections without a request, and of those in a TLS handshake; beyond it, the oldest
            one is closed.
        backlog: The kernel's queue of connections that have not been accepted. If it is full, calls of dockerd fail.
        share: The part of the descriptors that they may use. The rest is kept free.
    """

    waiting: int = 128
    backlog: int = 128
    share: float = 0.75


PLUGIN_SOCKET: Final = Capacity(waiting=512, backlog=BACKLOG, share=1.0)
"""Half of the 1024 descriptors that a process usually may have. dockerd sends its request as it connects."""


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket, how its connections are protected (None for not at all), and what they may take."""

    sock: socket.socket
    tls: "ssl.SSLContext | None" = None
    capacity: Capacity = Capacity()

    @property
    def address(self) -> str:
        """Its address, for the log."""
        name = self.sock.getsockname()
        return "{}:{}".format(*name) if isinstance(name, tuple) else str(name)


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """An address to listen at: `tcp://ADDRESS:PORT`, or `https://ADDRESS:PORT` with TLS and client certificates."""

    host: str
    port: int
    tls: bool

    @classmethod
    def parse(cls, text: str) -> "TcpAddress":
        """Return the address that a URL names.

        Raises:
            Refused: It is not such a URL, or would let other hosts connect without a certificate.
        """
        unusable = Refused(f"{text!r} is neither tcp://ADDRESS:PORT nor https://ADDRESS:PORT with an IP address")
        try:
            url = urlsplit(text)
            host, port = str(ipaddress.ip_address(url.hostname or "")), url.port
        except ValueError as exc:
            raise unusable from exc
        if url.scheme not in {"tcp", "https"} or port is None or url.path or url.query or url.username is not None:
            raise unusable
        if url.scheme == "tcp" and not ipaddress.ip_address(host).is_loopback:
            raise Refused(
                f"{text} would let other hosts run plugins as root; listen at a loopback address, "
                f"or at https://{url.netloc}, which requires client certificates"
            )
        return cls(host=host, port=port, tls=url.scheme == "https")


@contextmanager
def network_listeners(settings: Settings) -> Iterator[Sequence[Listener]]:
    """Listen at all addresses of the settings during the block.

    Raises:
        Refused: An address or a certificate cannot be used.
    """
    addresses = [TcpAddress.parse(text) for text in settings.listen]
    tls = _context(settings) if any(address.tls for address in addresses) else None
    with ExitStack() as stack:
        yield [
            Listener(stack.enter_context(_listen(address.host, address.port)), tls=tls if address.tls else None)
            for address in addresses
        ]


@contextmanager
def metrics_listener(settings: Settings) -> Iterator[Listener | None]:
    """Listen at the address for metrics during the block; yield None if there is none.

    Raises:
        Refused: The address cannot be used.
    """
    if not settings.metrics_listen:
        yield None
        return
    with _listen(*parse_address(settings.metrics_listen), option="--metrics-listen") as sock:
        yield Listener(sock)


def parse_address(text: str) -> tuple[str, int]:
    """Return the IP address and the port of `ADDRESS:PORT`; an IPv6 address is in brackets.

    Raises:
        Refused: It is not such a text.
    """
    try:
        url = urlsplit(f"//{text}")
        if url.netloc != text or url.port is None:
            raise ValueError(text)
        return str(ipaddress.ip_address(url.hostname or "")), url.port
    except ValueError as exc:
        raise Refused(f"{text!r} is not ADDRESS:PORT with an IP address, e.g. 127.0.0.1:9790") from exc


def _listen(host: str, port: int, *, option: str = "--listen") -> socket.socket:
    """Listen at an address; at a loopback address, only for packets that come through the link `lo`.

    Without that, a container on a bridge with `route_localnet` (portmap sets it) can send packets to 127.0.0.1 of the
    host, as in CVE-2020-8558.
    """
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sock.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if ipaddress.ip_address(host).is_loopback:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            sock.bind((host, port))
            sock.listen()
        except OSError as exc:
            reason = os.strerror(exc.errno or 0)
            raise Refused(f"cannot listen at {host} port {port}: {reason}; set {option}") from exc
        stack.pop_all()
        return sock


def _context(settings: Settings) -> "ssl.SSLContext":
    """Return the server's TLS settings: it shows its certificate, and requires one that our authority has signed."""
    import ssl  # noqa: PLC0415 - only with TLS, because the socket opens after this module has been imported

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as exc:
        raise _unusable(
            f"{settings.tls_cert} with the key {settings.tls_key}", exc, "--tls-cert and --tls-key"
        ) from exc
    try:
        context.load_verify_locations(settings.tls_ca)
    except OSError as exc:
        authority = f"{settings.tls_ca} as the authority that signs the certificates of clients"
        raise _unusable(authority, exc, "--tls-ca") from exc
    return context


def _unusable(what: str, error: OSError, options: str) -> Refused:
    return Refused(f"cannot use {what} for TLS: {error.strerror or error}; set {options}")
