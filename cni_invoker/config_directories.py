# SPDX-License-Identifier: Apache-2.0
"""Directories of network configurations: which file defines a network, and which files are unusable.

A broken file never hides another one. Files are read when they change, not on every lookup.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Final

from cni_invoker.documents.checks import StrPath, as_paths
from cni_invoker.documents.jsontypes import JsonObject
from cni_invoker.documents.lists import (
    FURTHER_SUFFIX,
    LIST_SUFFIX,
    PLUGIN_SUFFIXES,
    NetworkConfigurationList,
    parse_configuration,
    parse_further_plugin,
)
from cni_invoker.errors import READING, BadConfiguration, ConfigurationNotFound
from cni_invoker.messages import log_event

_FILE_BYTES: Final = 1 << 20
"""A larger file is not a configuration; those have some kilobytes."""

_SETTLED_NS: Final = 50_000_000
"""File times have the resolution of the kernel's tick, up to 10 ms. A file that was read this soon after a change may
have changed again with the same time, so it is read again."""

_Stat = tuple[int, int, int, int, int] | int
"""State of a file: device, inode, size, times of modification and change; or the errno of `stat`."""

_Seen = tuple[str, _Stat, bool]
"""Path and state of a file or of a directory that cannot be read, and whether it may describe a network itself."""

_Outcome = NetworkConfigurationList | BadConfiguration


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowedConfiguration:
    """A valid file that is not used, because an earlier file, `by`, describes the same network."""

    name: str
    file: Path
    by: Path


class ConfigurationIndex:
    """The content of configuration directories at one moment; immutable.

    Attributes:
        directories: In order of precedence.
        problems: One error for each unusable file or directory.
    """

    def __init__(self, directories: Iterable[Path], outcomes: Iterable[_Outcome]) -> None:
        chosen: dict[str, NetworkConfigurationList] = {}
        shadowed: list[ShadowedConfiguration] = []
        problems: list[BadConfiguration] = []
        for outcome in outcomes:
            if isinstance(outcome, BadConfiguration):
                problems.append(outcome)
                continue
            first = chosen.setdefault(outcome.name, outcome)
            if first is not outcome and first.source and outcome.source:
                shadowed.append(ShadowedConfiguration(name=outcome.name, file=outcome.source, by=first.source))
        self.directories = tuple(directories)
        self.problems = tuple(problems)
        self.shadowed = tuple(shadowed)
        self._chosen: Mapping[str, NetworkConfigurationList] = MappingProxyType(chosen)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all networks, sorted."""
        return tuple(sorted(self._chosen))

    def find(self, name: str) -> NetworkConfigurationList:
        """Return the list of the network `name`, or raise `ConfigurationNotFound`."""
        found = self._chosen.get(name)
        if found is None:
            raise self._not_found(name)
        return found

    def require_any(self) -> None:
        """Raise `ConfigurationNotFound` if there is no configuration at all."""
        if not self._chosen:
            raise self._not_found(None)

    def _not_found(self, name: str | None) -> ConfigurationNotFound:
        return ConfigurationNotFound(name, known=self.names, directories=self.directories, problems=self.problems)


class ConfigurationDirectories:
    """Directories of network configurations.

    In each directory all `.conflist` files come first, then all `.conf` and `.json` files, both sorted by name
    (libcni's `LoadNetworkConf`). The first file that describes a network is used. A missing directory counts as empty.
    Sub-directories contain further plugins of lists only (`read_configuration`).

    Args:
        directories: The directories, in order of precedence, or a single one.
    """

    def __init__(self, directories: StrPath | Iterable[StrPath]) -> None:
        self._mutex = threading.Lock()
        self._directories = tuple(dict.fromkeys(as_paths(directories)))
        self._index = ConfigurationIndex(self._directories, ())
        self._seen: list[_Seen] | None = []

    def index(self) -> ConfigurationIndex:
        """Return the current content of the directories.

        As long as no file has changed it is the same object, and no file is read.
        """
        with self._mutex:
            now_ns = time.time_ns()
            seen = list(self._scan())
            if seen != self._seen:
                self._index = ConfigurationIndex(self._directories, _read_all(seen))
                changes = (stat[-1] for _, stat, _ in seen if isinstance(stat, tuple))
                self._seen = seen if now_ns - max(changes, default=0) > _SETTLED_NS else None
            return self._index

    def _scan(self) -> Iterator[_Seen]:
        """Yield each configuration file, in order of precedence; those in sub-directories may belong to a list."""
        for directory in self._directories:
            try:
                with os.scandir(directory) as scan:
                    entries = sorted(scan, key=attrgetter("name"))
            except FileNotFoundError:
                continue
            except OSError as exc:
                yield str(directory), exc.errno or 0, True
                continue
            files = [entry for entry in entries if not _is_directory(entry)]
            for suffixes in ((LIST_SUFFIX,), PLUGIN_SUFFIXES):
                yield from ((entry.path, _stat(entry.path), True) for entry in files if entry.name.endswith(suffixes))
            for folder in filter(_is_directory, entries):
                with suppress(OSError), os.scandir(folder) as scan:  # reading the list reports the error
                    names = sorted(entry.path for entry in scan if entry.name.endswith(FURTHER_SUFFIX))
                    yield from ((path, _stat(path), False) for path in names)


def _read_all(seen: Iterable[_Seen]) -> Iterator[_Outcome]:
    for path, stat, is_own in seen:
        if is_own and isinstance(stat, int):
            yield BadConfiguration(os.strerror(stat), file=Path(path), phrase=READING)
        elif is_own:
            try:
                yield read_configuration(path)
            except BadConfiguration as exc:
                yield exc


def _is_directory(entry: os.DirEntry[str] | Path) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # for example a link to itself; reading it will report the error
        return False


def _stat(path: str) -> _Stat:
    try:
        status = os.stat(path)  # noqa: PTH116  # the hot path: no Path object per file
    except OSError as exc:
        return exc.errno or 0
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_configuration(file: StrPath) -> NetworkConfigurationList:
    """Read a list from its file and from the files with its further plugins.

    A list without `loadOnlyInlinedPlugins` continues in the files `NAME/*.conf` of its directory, NAME being the
    network's name, in the order of their names (CNI SPEC §1, libcni's `NetworkConfFromFile`).

    A warning is logged about keys that only a runtime may set.

    Raises:
        BadConfiguration: One of the files cannot be read, or is not a configuration.
    """
    path = Path(file)
    network = parse_configuration(_read(path), path, lambda name: _read_further(path.parent / name))
    for plugin in network.plugins:
        if plugin.reserved_keys:
            keys = ", ".join(plugin.reserved_keys)
            log_event(__name__, "configuration.reserved_keys", file=str(path), plugin=plugin.type, keys=keys)
    return network


def _read_further(directory: Path) -> list[JsonObject]:
    try:
        files = sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as exc:
        raise BadConfiguration(str(exc.strerror), file=directory, phrase=READING) from exc
    chosen = (file for file in files if file.name.endswith(FURTHER_SUFFIX) and not _is_directory(file))
    return [parse_further_plugin(_read(file), file) for file in chosen]


def _read(file: Path) -> bytes:
    try:
        # Opening a FIFO would wait for a writer, and a device may never end.
        if file.exists() and not file.is_file():
            raise BadConfiguration("not a regular file", file=file, phrase=READING)
        with file.open("rb") as opened:
            data = opened.read(_FILE_BYTES + 1)
    except OSError as exc:
        raise BadConfiguration(str(exc.strerror), file=file, phrase=READING) from exc
    if len(data) > _FILE_BYTES:
        raise BadConfiguration(f"it has more than {_FILE_BYTES} bytes", file=file, phrase=READING)
    return data
