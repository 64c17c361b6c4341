# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads facts about the daemon's installation: its process, its units, permissions, space and times."""

import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.doctor.facts import ADMIN_SOCKET, DOCKER, SERVICE, SOCKET, ClockFacts, PathFacts, UnitFacts
from cnm_bridge.operator.doctor.gathering.commands import read_lines

_UNITS: Final = (SERVICE, SOCKET, ADMIN_SOCKET, DOCKER)
_SYSTEMD: Final = Path("/run/systemd/system")
_ENFORCING: Final = Path("/sys/fs/selinux/enforce")


def find_daemon(state_dir: Path) -> int | None:
    """Return the process ID of the daemon that uses a state directory, None if none runs.

    The lock is only read: taking it, for however short a time, could keep a daemon from starting.
    """
    try:
        text = (state_dir / "lock").read_text("ascii").strip()
        command = Path("/proc", text, "cmdline").read_bytes() if text.isdigit() else b""
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if b"\0serve\0" in command else None


async def gather_units() -> dict[str, UnitFacts] | None:
    """Return the units; None if systemd does not run here."""
    if not _SYSTEMD.exists():
        return None
    found = {}
    for name in _UNITS:
        lines = await read_lines("systemctl", "show", "--property=UnitFileState,Before", name)
        values = dict(line.split("=", 1) for line in lines or () if "=" in line)
        found[name] = UnitFacts(
            state=values.get("UnitFileState", ""), before=frozenset(values.get("Before", "").split())
        )
    return found


def gather_paths(settings: Settings, configuration: Path) -> tuple[PathFacts, ...]:
    """Return the owners and permissions of what the daemon runs and reads as root, and of all directories to it."""
    private = (settings.state_dir, settings.socket, settings.admin_path, settings.tls_key)
    trusted = {
        **dict.fromkeys(_with_content(settings.cni_bin_dirs)),
        **dict.fromkeys(_with_content(settings.cni_conf_dirs, levels=2)),
        **dict.fromkeys((configuration, settings.run_dir, settings.tls_cert, settings.tls_ca, *private)),
    }
    leading = {directory: path for path in reversed(trusted) for directory in _directories_to(path)}
    return (
        *(facts for path in trusted for facts in _describe(path, is_private=path in private)),
        *(facts for one, path in leading.items() if one not in trusted for facts in _describe(one, leads_to=path)),
    )


def _with_content(directories: Iterable[Path], levels: int = 1) -> Iterator[Path]:
    """Yield directories and what is in them, in configurations with the further plugins of a list (`NAME/*.conf`)."""
    for directory in directories:
        yield directory
        try:
            content = sorted(directory.iterdir())
        except OSError:  # it is missing, or a file
            continue
        yield from content
        if levels > 1:
            for inner in content:
                yield from islice(_with_content((inner,)), 1, None)


def _directories_to(path: Path) -> Iterator[Path]:
    """Yield the directories through which a path leads, those of symbolic links included."""
    seen: set[Path] = set()
    waiting = [path.absolute()]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        if one != path.absolute() and not one.is_symlink():
            yield one
        waiting.extend([one.parent] if one != one.parent else [])
        with suppress(OSError):  # it is not a link
            waiting.append(one.parent / one.readlink())


def _describe(path: Path, *, is_private: bool = False, leads_to: Path | None = None) -> Iterator[PathFacts]:
    try:
        status = path.stat()
    except OSError:
        return
    yield PathFacts(path=path, owner=status.st_uid, mode=status.st_mode, is_private=is_private, leads_to=leads_to)


def gather_space(settings: Settings) -> dict[Path, int]:
    """Return the free bytes of the directories that the daemon writes to."""
    return {
        directory: shutil.disk_usage(directory).free
        for directory in (settings.state_dir, settings.run_dir)
        if directory.is_dir()
    }


def gather_clock(state_dir: Path) -> ClockFacts:
    """Return facts about the clock."""
    return ClockFacts(now=time.time(), newest_state=_newest(state_dir))


def _newest(state_dir: Path) -> float | None:
    times = []
    for file in state_dir.glob("leveldb/*"):
        try:
            times.append(file.stat().st_mtime)
        except OSError:  # LevelDB removes files
            continue
    return max(times, default=None)


def read_selinux() -> str:
    """Return `enforcing` or `permissive`, "" without SELinux."""
    try:
        return "enforcing" if _ENFORCING.read_text("ascii").strip() == "1" else "permissive"
    except OSError:
        return ""
