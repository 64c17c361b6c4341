# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A client of etcd's JSON gateway (etcd documentation "gRPC gateway"; 3.4 and newer): reads and transactions."""

import base64
import http.client
import os
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Event, Thread, Timer
from typing import Final

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    as_object,
    find_int,
    find_str,
    get_bool,
    get_object,
    get_objects,
    get_str,
    parse_json,
    render_json,
)
from cni_ipam_etcd.settings import Endpoint, Settings
from cni_plugin import CallError, ErrorCode

__all__ = ["NO_ANSWER", "REFUSED", "Etcd", "Pair", "absent", "delete", "put", "read", "same"]

NO_ANSWER: Final = 100
"""The code of an error if etcd did not answer in time. It is not 11, because runtimes would wait as long again."""
REFUSED: Final = 101
"""The code of an error with which etcd has answered."""

_PAUSE_S: Final = 0.1  # before all endpoints are tried again
_TELLING_S: Final = 0.2
"""What fails in less says less than an earlier failure: the time was too short."""
_CONNECT_S: Final = 1.5  # enough for one lost packet; a member that is down may leave all of them without an answer
_SERVER_ERROR: Final = 500
_OK: Final = 200
_CLOSED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)
_TRANSIENT: Final = frozenset({2, 4, 14})
"""gRPC's codes UNKNOWN, DEADLINE_EXCEEDED and UNAVAILABLE: a member without a leader answers a read with 14, and, after
seven seconds, a transaction with 2 and "context deadline exceeded" (etcd 3.4; `rpctypes/error.go`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A key with its value.

    Attributes:
        key: The key.
        value: Its value; empty if only keys were read.
    """

    key: str
    value: bytes

    @classmethod
    def parse(cls, document: JsonObject) -> "Pair":
        """Parse etcd's `KeyValue`; it leaves out what is empty."""
        return cls(
            key=base64.b64decode(get_str(document, "key")).decode("utf-8", "replace"),
            value=base64.b64decode(find_str(document, "value") or ""),
        )


def absent(key: str) -> JsonObject:
    """Return a comparison: a key does not exist."""
    return {"key": _encode(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"}


def same(key: str, value: bytes) -> JsonObject:
    """Return a comparison: a key exists, and has a value.

    Revisions would do as well, but a copy of a cluster, key by key, has others.
    """
    return {"key": _encode(key), "target": "VALUE", "result": "EQUAL", "value": _encode(value)}


def put(key: str, value: bytes) -> JsonObject:
    """Return an operation: write a key."""
    return {"request_put": {"key": _encode(key), "value": _encode(value)}}


def delete(key: str) -> JsonObject:
    """Return an operation: delete a key."""
    return {"request_delete_range": {"key": _encode(key)}}


def read(key: str) -> JsonObject:
    """Return an operation: read a key."""
    return {"request_range": {"key": _encode(key)}}


def _encode(text: str | bytes) -> str:
    return base64.b64encode(text.encode() if isinstance(text, str) else text).decode("ascii")


class _Unusable(Exception):
    """An endpoint will not give another answer if it is asked again."""


class Etcd:
    """A connection to a cluster for one call of the plugin; the limit of all requests begins when it is made.

    A request that is not answered is sent to the next endpoint, even if it may have been carried out: a repeated
    transaction finds its own keys, which the caller recognises.

    Args:
        settings: The endpoints, files and limit.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._endpoints = list(settings.endpoints)
        self._deadline = time.monotonic() + settings.timeout_s
        self._connection: http.client.HTTPConnection | None = None
        self._failures: dict[str, str] = {}

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def read_range(
        self, first: str, end: str, *, limit: int = 0, keys_only: bool = False, revision: int = 0
    ) -> tuple[tuple[Pair, ...], int]:
        """Return what is under the keys from `first` on and before `end`, in order, and the store's revision.

        Args:
            first: The first key.
            end: The key behind the last one.
            limit: How many are read at most; 0: all.
            keys_only: Whether values are left out.
            revision: Read what there was in an earlier revision; 0: now.

        Raises:
            CallError: As for `transact`.
        """
        request: JsonObject = {"key": _encode(first), "range_end": _encode(end), "limit": limit}
        reply = self._post("/v3/kv/range", {**request, "keys_only": keys_only, "revision": revision})
        found = tuple(map(Pair.parse, get_objects(reply, "kvs")))
        return found, revision or int(get_str(get_object(reply, "header"), "revision"))

    def transact(
        self, compare: Sequence[JsonObject], success: Sequence[JsonObject], failure: Sequence[JsonObject] = ()
    ) -> tuple[Pair, ...] | None:
        """Carry out operations if all comparisons hold.

        Returns:
            None if they held. Otherwise what the operations of `failure`, which only read, have found.

        Raises:
            CallError: No endpoint has answered in time (code 100), or etcd refuses the request (code 101).
        """
        body: JsonObject = {"compare": list(compare), "success": list(success), "failure": list(failure)}
        reply = self._post("/v3/kv/txn", body)
        if get_bool(reply, "succeeded"):
            return None
        answers = (get_object(answer, "response_range") for answer in get_objects(reply, "responses"))
        return tuple(Pair.parse(pair) for answer in answers for pair in get_objects(answer, "kvs"))

    def _post(self, path: str, body: JsonObject) -> JsonObject:
        content = render_json(body)
        tried = 0
        while self._endpoints and (left_s := self._deadline - time.monotonic()) > 0:
            endpoint = self._endpoints[0]  # the one that the connection leads to
            # An equal part of the time for each endpoint, so that one that is silent does not use it up.
            part_s = left_s / (len(self._endpoints) - tried)
            try:
                return self._ask(endpoint, path, content, part_s)
            except _Unusable as exc:
                self._failures[endpoint.url] = str(exc)
                del self._endpoints[0]
            except (OSError, http.client.HTTPException) as exc:
                if part_s >= _TELLING_S or endpoint.url not in self._failures:
                    self._failures[endpoint.url] = getattr(exc, "strerror", None) or str(exc) or type(exc).__name__
                self._endpoints.append(self._endpoints.pop(0))
                tried += 1
            self.close()
            if tried >= len(self._endpoints) > 0:
                tried = 0
                time.sleep(max(0, min(_PAUSE_S, self._deadline - time.monotonic())))
        reasons = "; ".join(f"{url}: {reason}" for url, reason in self._failures.items())
        limit = f" within {self._settings.timeout_s:g} s" if self._endpoints else ""
        raise CallError(NO_ANSWER, f"etcd does not answer{limit}", reasons)

    def _ask(self, endpoint: Endpoint, path: str, content: bytes, left_s: float) -> JsonObject:
        """Ask one endpoint.

        Raises:
            OSError: It, or its cluster, cannot answer now.
            _Unusable: It never will.
            CallError: etcd refuses the request.
        """
        if self._connection is None or self._connection.sock is None:  # None after `Connection: close`
            self._connection = self._connect(endpoint, left_s)
        late = f"no answer in {left_s:.1f} s: it hangs, or its cluster has no quorum"
        try:
            with _limited(self._connection.sock, left_s, late):
                self._connection.request("POST", path, content, {"Content-Type": "application/json"})
                response = self._connection.getresponse()
                reply = _parse(response.read())
        except _CLOSED as exc:
            raise _closed(endpoint, exc) from exc
        except ssl.SSLError as exc:  # from TLS 1.3 on, a client's certificate is refused only now
            raise _Unusable(f"TLS: {exc.reason or exc}") from exc
        if response.status == _OK and "header" in reply:
            return reply
        code = find_int(reply, "code")
        reason = find_str(reply, "error") or find_str(reply, "message") or f"HTTP status {response.status}"
        if code is None and response.status >= _SERVER_ERROR:  # of a proxy before it
            raise OSError(reason)
        if code is None:
            raise _Unusable(f"{reason}: it has no JSON gateway {path}; is it etcd 3.4 or newer?")
        if code not in _TRANSIENT:
            raise CallError(REFUSED, f"etcd at {endpoint.url} refuses the request: {reason}")
        raise OSError(reason)

    def _connect(self, endpoint: Endpoint, left_s: float) -> http.client.HTTPConnection:
        context = _load_files(self._settings) if endpoint.is_tls else None
        connection = http.client.HTTPConnection(endpoint.host, endpoint.port)
        began = time.monotonic()
        addresses = _resolve(endpoint, left_s)
        left_s = min(left_s - (time.monotonic() - began), _CONNECT_S)
        try:
            connection.sock = _open(addresses, endpoint.port, left_s)
            if context is not None:
                with _limited(connection.sock, left_s, "no connection: its TLS hangs"):
                    connection.sock = context.wrap_socket(connection.sock, server_hostname=endpoint.host)
        except _CLOSED as exc:
            raise _closed(endpoint, exc) from exc
        except ssl.SSLCertVerificationError as exc:
            raise _Unusable(f"its certificate is not accepted: {exc.verify_message}") from exc
        except ssl.SSLError as exc:
            raise _Unusable(f"TLS: {exc.reason or exc}") from exc
        except TimeoutError as exc:
            raise TimeoutError("no connection: it cannot be reached") from exc
        return connection


def _resolve(endpoint: Endpoint, left_s: float) -> Sequence[str]:
    """Return the addresses of an endpoint. The resolver has no limit of its own, so it runs in a thread.

    Raises:
        OSError: There are none, or not in time.
    """
    found: list[str] = []
    errors: list[OSError] = []

    def resolve() -> None:
        try:
            answers = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
            found.extend(str(address[0]) for *_, address in answers)
        except (OSError, UnicodeError) as exc:
            errors.append(OSError(f"its name is not known: {getattr(exc, 'strerror', None) or exc}"))

    thread = Thread(target=resolve, daemon=True)  # the process does not wait for it
    thread.start()
    thread.join(max(0.0, left_s))
    if thread.is_alive():
        raise TimeoutError(f"its name is not resolved within {left_s:.1f} s")
    if errors:
        raise errors[0]
    return found


def _open(addresses: Sequence[str], port: int, left_s: float) -> socket.socket:
    """Return a connection to the first address that accepts one; each has an equal part of the time."""
    deadline = time.monotonic() + left_s
    for number, address in enumerate(addresses, 1):
        limit_s = (deadline - time.monotonic()) / (len(addresses) - number + 1)
        try:
            connection = socket.create_connection((address, port), max(0.001, limit_s))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            if number == len(addresses):
                raise
        else:
            return connection
    raise OSError("its name has no address")


@contextmanager
def _limited(opened: socket.socket, limit_s: float, late: str) -> Iterator[None]:
    """Limit the body as a whole. A time-out of a socket limits each of its reads, and a byte a second would do.

    Raises:
        TimeoutError: The limit has passed.
    """
    opened.settimeout(None)
    is_late = Event()
    descriptor = socket.socket(fileno=os.dup(opened.fileno()))  # TLS replaces the object

    def end() -> None:
        is_late.set()
        with suppress(OSError):
            descriptor.shutdown(socket.SHUT_RDWR)

    timer = Timer(max(0.0, limit_s), end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not is_late.is_set():
            raise
    finally:
        timer.cancel()
        timer.join()
        descriptor.close()
    if is_late.is_set():
        raise TimeoutError(late)


def _closed(endpoint: Endpoint, exc: OSError) -> OSError:
    """Return the error for a connection that was closed or refused."""
    if not endpoint.is_tls or isinstance(exc, ConnectionRefusedError):
        return exc
    return ConnectionError("it closes the connection: it is shutting down, or does not accept the client's certificate")


def _parse(content: bytes) -> JsonObject:
    with suppress(JsonError):
        return as_object(parse_json(content), "it")
    return {}


def _load_files(settings: Settings) -> ssl.SSLContext:
    """Return what verifies etcd, and what etcd verifies.

    Raises:
        CallError: A file is missing, or is not what the settings say (code 7).
    """
    file = settings.ca_file
    try:
        context = ssl.create_default_context(cafile=file or None)
        if settings.cert_file:
            file = f"{settings.cert_file} with key {settings.key_file or 'in the same file'}"
            context.load_cert_chain(settings.cert_file, settings.key_file or None)
    except OSError as exc:  # ssl.SSLError is one
        what = f"the settings of etcd name TLS files that cannot be used: {file}"
        raise CallError(ErrorCode.INVALID_CONFIGURATION, what, exc.strerror or str(exc)) from exc
    return context
