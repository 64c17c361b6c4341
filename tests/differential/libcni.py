# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""libcni in a process: built from Debian's packages, it runs cases that come as lines of JSON."""

import hashlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, Self

from tests.lab.debian import (
    FetchError,
    Unpacked,
    cache_directory,
    fetch_packages,
    fetch_source,
    find_packages,
    run_program,
)

__all__ = ["FetchError", "Libcni", "build_cnitool", "build_driver", "find_cnitool", "find_driver"]

_KIND: Final = "libcni"
_SUITE: Final = "sid"  # the only one with libcni 1.3
_PACKAGES: Final = ("golang-github-appc-cni-dev", "golang-go")
_SOURCE: Final = "golang-github-appc-cni"
"""The Debian source package, which has cnitool beside libcni."""
_SOURCES: Final = Path(__file__).parent / "driver"

_BIND: Final = (
    'mkdir -p "$1"; mount -t tmpfs tmpfs /var/lib; mkdir /var/lib/cni; mount --bind "$1" /var/lib/cni; shift; exec "$@"'
)
_AT_CACHE: Final = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", _BIND, "sh", "{cache}")
"""Before cnitool's words: it has no option for its cache, which is in /var/lib/cni."""

ENVIRONMENT: Final = {"INHERITED": "yes", "CNI_ARGS": "of=the-caller", "CNI_COMMAND": "of-the-caller"}
"""What a runtime inherits; CNI's variables must be replaced."""


def find_driver(sources: Path = _SOURCES) -> Path | None:
    """Return the executable if it was built before from the present source, else None."""
    found = find_packages(_KIND, _SUITE)
    built = _place(found, sources) if found is not None else None
    return built if built is not None and built.exists() else None


def build_driver(sources: Path = _SOURCES) -> Path:
    """Return the executable, which is built once for each version of its source and of libcni.

    Raises:
        FetchError: Neither the cache nor the mirror has libcni and Go, or they do not work here.
    """
    found = find_packages(_KIND, _SUITE) or fetch_packages(_KIND, _SUITE, _PACKAGES, check=_go, whole=True)
    built = _place(found, sources)
    if not built.exists():
        with tempfile.TemporaryDirectory(dir=built.parent, prefix=".building-") as directory:
            made = Path(directory) / built.name
            run_program(str(_go(found)), "build", "-o", str(made), ".", cwd=sources, environment=_environment(found))
            made.replace(built)
    return built


def find_cnitool() -> tuple[str, ...] | None:
    """Return the command line of cnitool if it was built before, else None; `{cache}` is to be its cache."""
    for sources in cache_directory(_KIND).glob(f"{_SOURCE}-[0-9]*/cnitool"):
        built = find_driver(sources)
        if built is not None:
            return (*_AT_CACHE, str(built))
    return None


def build_cnitool() -> tuple[str, ...]:
    """Return the command line of cnitool itself, of the source that Debian's libcni was made from.

    Raises:
        FetchError: As `build_driver`, or the mirror does not have the source.
    """
    return (*_AT_CACHE, str(build_driver(fetch_source(_KIND, _SUITE, _SOURCE) / "cnitool")))


def _place(unpacked: Unpacked, sources: Path) -> Path:
    source = b"".join(file.read_bytes() for file in sorted(sources.iterdir()))
    digest = hashlib.sha256(source).hexdigest()[:12]
    return cache_directory(_KIND) / f"driver-{unpacked.version}-{digest}"


def _go(unpacked: Unpacked) -> Path:
    (go,) = unpacked.directory.glob("usr/lib/go-*/bin/go")
    run_program(str(go), "version", environment=_environment(unpacked))
    return go


def _environment(unpacked: Unpacked) -> dict[str, str]:
    (root,) = unpacked.directory.glob("usr/lib/go-*")
    return {
        "GOROOT": str(root),
        "GOPATH": str(unpacked.directory / "usr/share/gocode"),
        "GO111MODULE": "off",  # all is on disk
        "GOFLAGS": "",
        "GOTOOLCHAIN": "local",
        "GOCACHE": str(cache_directory(_KIND) / "go-build"),
        "CGO_ENABLED": "0",
    }


class Libcni:
    """A process that runs cases with libcni."""

    def __init__(self, driver: Path) -> None:
        self._process = subprocess.Popen(
            [driver], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**ENVIRONMENT, "PATH": os.environ["PATH"]}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def send(self, request: dict[str, Any]) -> None:
        """Send a case; libcni works on it while the caller does something else."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self) -> list[dict[str, Any]]:
        """Return what libcni did: an observation of loading the configuration, and one for each operation."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the driver ended with status {self._process.wait()}"
        observations: list[dict[str, Any]] = json.loads(line)
        return observations
