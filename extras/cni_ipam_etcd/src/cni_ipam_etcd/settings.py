# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where etcd is, and who this node is: the object `etcd` of an IPAM section, or a file with the same keys.

```
{ "endpoints": ["https://10.0.0.1:2379", "https://10.0.0.2:2379"],
  "caFile": "/etc/cni/etcd/ca.pem", "certFile": "/etc/cni/etcd/node.pem", "keyFile": "/etc/cni/etcd/node-key.pem" }
```
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cni_invoker.documents.checks import check_network_name
from cni_invoker.documents.jsontypes import JsonError, JsonObject, as_object, find_str, get_strings, parse_json
from cni_invoker.errors import InvalidParameter
from cni_plugin import CallError, ErrorCode

__all__ = ["DEFAULT_FILE", "Endpoint", "Settings"]

DEFAULT_FILE: Final = Path("/etc/cni/cni-ipam-etcd.json")
"""Not in /etc/cni/net.d, where runtimes look for networks."""
_KEYS: Final = ("endpoints", "caFile", "certFile", "keyFile", "prefix", "node", "timeout")
_TIMEOUT_S: Final = 8.0  # a runtime waits 10 s for STATUS; a member without a quorum needs 7 s to say so
_LONGEST_S: Final = 60
_PORT: Final = 2379
_PREFIX: Final = "/cni-ipam-etcd"
_MACHINE_ID: Final = Path("/etc/machine-id")
_OWN_ID: Final = Path("/var/lib/cni/cni-ipam-etcd.id")
_DIGITS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """A member of the cluster, as a client reaches it.

    Attributes:
        url: What the administrator wrote, for errors.
        host: Its name or address.
        port: Its port.
        is_tls: Whether the connection is encrypted.
    """

    url: str
    host: str
    port: int
    is_tls: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the plugin and the operator's commands need besides the ranges.

    Attributes:
        endpoints: At least one.
        ca_file: The authority of etcd's certificates; empty: the system's.
        cert_file: This client's certificate; empty: none.
        key_file: Its private key.
        prefix: The beginning of all keys, without a slash at its end.
        node: The name under which this host reserves addresses.
        timeout_s: Limit for all requests of one call together, in seconds.
        machine: What tells this host from another one of the same name: a digest of its machine ID.
    """

    endpoints: tuple[Endpoint, ...]
    ca_file: str
    cert_file: str
    key_file: str
    prefix: str
    node: str
    timeout_s: float
    machine: str

    @classmethod
    def of_section(cls, ipam: JsonObject) -> "Settings":
        """Return the settings of an IPAM section, whose `etcd` is an object, the path of a file, or absent.

        Raises:
            CallError: They are invalid (code 7).
        """
        etcd = ipam.get("etcd")
        if etcd is None or isinstance(etcd, str):
            return cls.of_file(Path(etcd or DEFAULT_FILE))
        try:
            return _parse(as_object(etcd, "it"))
        except (JsonError, InvalidParameter) as exc:
            raise _invalid("etcd in the IPAM section", str(exc)) from exc

    @classmethod
    def of_file(cls, path: Path) -> "Settings":
        """Return the settings of a file that has nothing else.

        Raises:
            CallError: There is none, or it is invalid (code 7).
        """
        try:
            return _parse(as_object(parse_json(path.read_bytes()), "it"))
        except OSError as exc:
            raise _invalid(str(path), exc.strerror or str(exc)) from exc
        except (JsonError, InvalidParameter) as exc:
            raise _invalid(str(path), str(exc)) from exc


def _invalid(where: str, reason: str) -> CallError:
    details = f"etcd is described in {DEFAULT_FILE}, or by `etcd` in the IPAM section: an object, or another file"
    return CallError(
        ErrorCode.INVALID_CONFIGURATION, f"the settings of etcd cannot be used: {where}: {reason}", details
    )


def _parse(document: JsonObject) -> Settings:
    unknown = [key for key in document if key not in _KEYS]
    if unknown:
        raise JsonError(f"unknown key {unknown[0]}; there are {', '.join(_KEYS)}")
    endpoints = tuple(map(_parse_endpoint, get_strings(document, "endpoints")))
    if not endpoints:
        raise JsonError('endpoints is missing: an array such as ["https://10.0.0.1:2379"]')
    prefix = find_str(document, "prefix") or _PREFIX
    if not prefix.startswith("/") or not prefix.rstrip("/") or not prefix.isprintable():
        raise JsonError(f"prefix {prefix!r} must begin with a slash, and have more than that")
    node = find_str(document, "node") or os.uname().nodename
    check_network_name(node)  # the same rule
    timeout = document.get("timeout", _TIMEOUT_S)
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= _LONGEST_S:
        raise JsonError(f"timeout must be a number of seconds up to {_LONGEST_S}, not {timeout!r}")
    ca, cert, key = (find_str(document, name) or "" for name in ("caFile", "certFile", "keyFile"))
    if (ca or cert or key) and not all(one.is_tls for one in endpoints):
        raise JsonError("there are TLS files, but an endpoint does not begin with https://")
    return Settings(
        endpoints=endpoints,
        ca_file=ca,
        cert_file=cert,
        key_file=key,
        prefix=prefix.rstrip("/"),
        node=node,
        timeout_s=timeout,
        machine=_machine(),
    )


def _machine() -> str:
    """Return a digest of the host's machine ID, which machine-id(5) asks not to publish.

    A host without one gets a random ID, which is kept.

    Raises:
        CallError: It cannot be kept (code 5).
    """
    found = _read(_MACHINE_ID)
    if len(found) != _DIGITS:  # "uninitialized" while a system boots for the first time
        found = _read(_OWN_ID) or _make_id()
    return sha256(f"cni-ipam-etcd {found}".encode()).hexdigest()[:_DIGITS]


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        return ""


def _make_id() -> str:
    part = _OWN_ID.with_name(f"{_OWN_ID.name}.{os.getpid()}")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(os.urandom(_DIGITS // 2).hex(), "ascii")
        with suppress(FileExistsError):  # another process was quicker
            os.link(part, _OWN_ID)
        part.unlink()
    except OSError as exc:
        raise CallError(
            ErrorCode.IO_FAILURE, f"this host has no machine ID, and {_OWN_ID} cannot be written: {exc}"
        ) from exc
    return _read(_OWN_ID)


def _parse_endpoint(url: str) -> Endpoint:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or _PORT
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"} or parts.path.rstrip("/") or parts.query or "@" in url:
        raise JsonError(f"endpoint {url!r} is not of the form https://HOST:{_PORT} or http://HOST:{_PORT}")
    return Endpoint(url=url, host=host, port=port, is_tls=parts.scheme == "https")
