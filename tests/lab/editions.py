# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which Docker engine and which CNI plugins a lab has: the machine's own, or others that were fetched.

Both are chosen by the beginning of a version, number by number: `28`, `28.5` and `28.5.2` are the same engine if only
one of them is known. `29+nftables` is an Engine 29 that makes its rules with nftables instead of iptables.

Tests use the main engine, the one that most hosts have; a lab on the command line has the machine's.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.lab.debian import FetchError
from tests.lab.errors import LabError
from tests.lab.fetched_engines import SUITES, find_fetched_engine, known_sources
from tests.lab.fetched_plugins import PACKAGE, find_fetched_plugins
from tests.lab.given_engines import VARIABLE
from tests.lab.programs import SEARCH_PATH

MAIN_ENGINE: Final = "28.5"
"""The beginning of the version of the engine that most hosts have."""

MACHINE_PLUGINS: Final = Path("/usr/lib/cni")
_NFTABLES: Final = "+nftables"
_WITH_NFTABLES: Final = (29,)
"""The first engine with `--firewall-backend=nftables`."""


class NoSuchEdition(LabError):
    """There is no engine, or there are no plugins, of the requested version; the message lists the known ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A Docker engine: dockerd, the docker command and containerd.

    Attributes:
        version: E.g. `(28, 5, 2)`.
        directory: What stands for `/` of the machine it was made for; None: it is the machine's own.
        nftables: Whether dockerd makes its rules with nftables. It then needs a host that forwards IPv4.
    """

    version: tuple[int, ...]
    directory: Path | None = None
    nftables: bool = False

    @property
    def name(self) -> str:
        """The version as text, e.g. `28.5.2` or `29.7.2+nftables`."""
        return ".".join(map(str, self.version)) + (_NFTABLES if self.nftables else "")

    @property
    def is_main(self) -> bool:
        """Whether it is the engine that most hosts have, in its default settings."""
        return _begins(self.version, MAIN_ENGINE) and not self.nftables

    @property
    def search_path(self) -> str:
        """The directories of its programs, for PATH, before the machine's; "" for the machine's own engine."""
        return f"{self.directory / 'usr/sbin'}:{self.directory / 'usr/bin'}" if self.directory else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """A set of CNI plugins.

    Attributes:
        version: E.g. `(1, 9, 1)`; empty for plugins of the machine that are not Debian's: plugins do not report it.
        directory: Where they are.
    """

    version: tuple[int, ...]
    directory: Path

    @property
    def name(self) -> str:
        """The version as text, e.g. `1.9.1`."""
        return ".".join(map(str, self.version)) or "unknown"


def machine_engine() -> Engine | None:
    """Return the machine's own engine; None if none is installed."""
    own = shutil.which("dockerd", path=SEARCH_PATH)
    return Engine(version=_version_of(own)) if own else None


def main_engine() -> Engine:
    """Return the engine of the tests: `MAIN_ENGINE` if it was fetched, else the machine's own.

    Raises:
        LabError: Neither is there.
    """
    known = known_engines()
    if not known:
        raise LabError("dockerd is not installed; run `make setup`")
    return next((engine for engine in known if engine.is_main), known[0])


def known_engines() -> Sequence[Engine]:
    """Return the known engines, the machine's own first.

    Raises:
        LabError: One of them does not run.
    """
    own = machine_engine()
    engines = [own] if own else []
    try:
        sources = known_sources()
    except FetchError as exc:
        raise LabError(str(exc)) from exc
    for source in sources:
        try:
            directory = find_fetched_engine(source)
        except FetchError as exc:
            raise LabError(f"the engine of {source} that was fetched is unusable: {exc}") from exc
        if directory is not None:
            engines.append(Engine(version=_version_of(str(directory / "usr/sbin/dockerd")), directory=directory))
    return tuple(engines)


def known_plugins() -> Sequence[Plugins]:
    """Return the known sets of plugins, the machine's own first.

    Raises:
        LabError: One of them does not run.
    """
    known = []
    if (MACHINE_PLUGINS / "bridge").exists():
        # Debian's plugins do not report their version.
        asked = ("dpkg-query", "--show", "--showformat=${Version}", PACKAGE)
        output = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        known.append(Plugins(version=_numbers(output), directory=MACHINE_PLUGINS))
    try:
        fetched = find_fetched_plugins()
    except FetchError as exc:
        raise LabError(f"the fetched plugins are unusable: {exc}") from exc
    if fetched is not None:
        known.append(Plugins(version=_numbers(fetched.version), directory=fetched.directory))
    return tuple(known)


def find_engine(wanted: str) -> Engine:
    """Return the first engine whose version begins with `wanted`, e.g. `28.5` or `29+nftables`.

    Raises:
        NoSuchEdition: There is none; the message has those there are, and how others come.
    """
    known = known_engines()
    plain = wanted.removesuffix(_NFTABLES)
    for engine in known if plain == wanted else with_nftables(known):
        if _begins(engine.version, plain):
            return engine
    raise NoSuchEdition(
        f"there is no Docker engine {wanted} here, only {_listed(known)}; `python -m tests.lab.fetch engines` fetches "
        f"those of Debian's {' and '.join(SUITES)}, and those in the directory that {VARIABLE} names"
    )


def with_nftables(engines: Sequence[Engine]) -> Sequence[Engine]:
    """Return those of some engines that can make their rules with nftables, as engines that do."""
    return tuple(replace(engine, nftables=True) for engine in engines if engine.version >= _WITH_NFTABLES)


def find_plugins(wanted: str) -> Plugins:
    """Return the first set of plugins whose version begins with `wanted`.

    Raises:
        NoSuchEdition: There is none; the message has those there are, and how others come.
    """
    known = known_plugins()
    for plugins in known:
        if _begins(plugins.version, wanted):
            return plugins
    raise NoSuchEdition(
        f"there are no CNI plugins {wanted} here, only {_listed(known)}; `python -m tests.lab.fetch plugins` fetches "
        "those of Debian's sid"
    )


def _begins(version: tuple[int, ...], wanted: str) -> bool:
    numbers = wanted.split(".")
    return [str(number) for number in version[: len(numbers)]] == numbers


def _listed(known: Sequence[Engine] | Sequence[Plugins]) -> str:
    return ", ".join(edition.name for edition in known) or "none"


def _version_of(dockerd: str) -> tuple[int, ...]:
    done = subprocess.run((dockerd, "--version"), capture_output=True, text=True, check=False)
    _, word, version = done.stdout.partition("version ")
    if not word:
        raise LabError(f"{dockerd} does not tell its version, but: {(done.stdout + done.stderr).strip()}")
    return _numbers(version)


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers at the start of a version; none if it starts otherwise."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(number) for number in found[0].split(".")) if found else ()
