# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds a driver as dockerd does: by its socket, else by a spec file (moby, `pkg/plugins/discovery.go`)."""

import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    as_object,
    find_object,
    find_str,
    get_bool,
    get_str,
    parse_json,
)
from cni_invoker.plugin import CallError, ErrorCode

__all__ = ["SOCKETS", "SPECS", "DriverAddress", "Tls", "find_driver"]

SOCKETS: Final = Path("/run/docker/plugins")
SPECS: Final = (Path("/etc/docker/plugins"), Path("/usr/lib/docker/plugins"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverAddress:
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
    for socket in (sockets / f"{name}.sock", sockets / name / f"{name}.sock"):
        if _is_socket(socket):
            return DriverAddress(path=str(socket))
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
