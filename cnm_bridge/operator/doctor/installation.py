# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether the daemon is installed safely, starts at boot, and has space."""

import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.doctor.facts import (
    DOCKER,
    SERVICE,
    SOCKET,
    Facts,
    Finding,
    PathFacts,
    Severity,
    error,
    warning,
)
from cnm_bridge.operator.host import read_lines

_UNITS: Final = (SERVICE, SOCKET, DOCKER)
_SYSTEMD: Final = Path("/run/systemd/system")
_LITTLE_BYTES: Final = 16 << 20


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


async def gather_units() -> dict[str, str] | None:
    """Return the state of each unit, see `InstallationFacts`; None if systemd does not run here."""
    if not _SYSTEMD.exists():
        return None
    found = {}
    for name in _UNITS:
        lines = await read_lines("systemctl", "show", "--property=UnitFileState", "--value", name)
        found[name] = lines[0] if lines else ""
    return found


def gather_paths(settings: Settings) -> tuple[PathFacts, ...]:
    """Return the owners and permissions of what the daemon runs and reads as root, and of all directories to it."""
    private = (settings.state_dir, settings.socket, settings.admin_path)
    trusted = dict.fromkeys(
        (
            *(path for directory in settings.cni_bin_dirs for path in (directory, *directory.glob("*"))),
            # `NAME/*.conf` has further plugins of a list.
            *(
                path
                for directory in settings.cni_conf_dirs
                for path in (directory, *directory.glob("*"), *directory.glob("*/*"))
            ),
            *(settings.config, settings.run_dir, *private),
        )
    )
    leading = {directory: path for path in reversed(trusted) for directory in _directories_to(path)}
    return (
        *(facts for path in trusted for facts in _describe(path, is_private=path in private)),
        *(
            facts
            for directory, path in leading.items()
            if directory not in trusted
            for facts in _describe(directory, leads_to=path)
        ),
    )


def _directories_to(path: Path) -> Iterator[Path]:
    """Yield the directories through which a path leads, those of each symbolic link on the way included."""
    seen: set[Path] = set()
    waiting = [path.absolute()]
    while waiting:
        passed = waiting.pop()
        if passed in seen:
            continue
        seen.add(passed)
        if passed != path.absolute() and not passed.is_symlink():
            yield passed
        waiting.extend([passed.parent] if passed != passed.parent else [])
        with suppress(OSError):  # it is not a link
            waiting.append(passed.parent / passed.readlink())


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


def check_installation(facts: Facts) -> Iterator[Finding]:
    """Find a daemon that does not run or does not start at boot, foreign hands and a full disk."""
    if not facts.installation.is_root:
        yield warning(
            "not-root",
            "doctor",
            "it does not run as root: rules, reservations and permissions may be missing from what it sees",
            fix="sudo cni-bridge doctor",
        )
    for mistake in facts.installation.mistakes:
        yield error(
            "settings-invalid",
            "settings",
            f"{mistake}: the daemon does not start with it",
            advice="correct the file; docs/configuration.md has all settings",
        )
    yield from _check_daemon(facts)
    yield from _check_units(facts)
    yield from _check_permissions(facts)
    yield from _check_space(facts)


def _check_daemon(facts: Facts) -> Iterator[Finding]:
    if facts.installation.daemon_pid is not None:
        return
    networks = len(facts.engine.networks)
    yield Finding(
        severity=Severity.ERROR if networks else Severity.NOTE,
        code="daemon-stopped",
        subject="daemon",
        text=f"it does not run, and Docker has {networks} network{'s' if networks > 1 else ''} of it, whose "
        "containers do not start"
        if networks
        else "it does not run",
        fix=start_daemon(facts),
    )


def start_daemon(facts: Facts) -> str:
    """Return the command that starts the daemon."""
    units = facts.installation.units
    return "cni-bridge serve &" if units is None else f"systemctl start {SOCKET} {SERVICE}"


def _check_units(facts: Facts) -> Iterator[Finding]:
    units = facts.installation.units
    if units is None:
        return
    service, socket, docker = (units.get(name, "") for name in (SERVICE, SOCKET, DOCKER))
    if not service:
        return  # not installed as a unit
    if docker == "enabled" and not service.startswith("enabled") and not socket.startswith("enabled"):
        yield error(
            "boot-disabled",
            "boot",
            "Docker starts at boot and cni-bridge does not: containers with a restart policy find no network",
            fix=f"systemctl enable --now {SOCKET} {SERVICE}",
        )
    elif socket and not socket.startswith("enabled"):
        yield warning(
            "socket-disabled",
            "boot",
            f"{SOCKET} is not enabled: Docker's calls fail, instead of waiting, while the daemon restarts",
            fix=f"systemctl enable --now {SOCKET}",
        )


def _check_permissions(facts: Facts) -> Iterator[Finding]:
    for file in facts.installation.paths:
        if _is_writable_by_others(file):
            what = "change" if file.leads_to is None else f"replace {file.leads_to},"
            yield error(
                "writable-by-others",
                str(file.path),
                f"its owner is user {file.owner} and its mode {file.mode & 0o7777:o}: others than root may "
                f"{what} what the daemon runs or reads as root",
                fix=f"chown root:root {file.path} && chmod go-w {file.path}",
                advice="" if file.leads_to is None else f"move {file.leads_to} to where only root can write",
            )
        elif file.is_private and file.mode & (stat.S_IRWXG | stat.S_IRWXO):
            yield warning(
                "readable-by-others",
                str(file.path),
                f"its mode is {file.mode & 0o7777:o}: others than root can read it, and it may hold credentials",
                fix=f"chmod go= {file.path}",
            )


def _is_writable_by_others(file: PathFacts) -> bool:
    """Return whether others than root can change a file, add to a directory, or replace what is on the way to one.

    The sticky bit only helps on the way, as in /tmp: there it keeps others from replacing what is root's.
    """
    is_protected = file.leads_to is not None and file.mode & stat.S_ISVTX
    return file.owner != 0 or bool(file.mode & (stat.S_IWGRP | stat.S_IWOTH) and not is_protected)


def _check_space(facts: Facts) -> Iterator[Finding]:
    for path, free in facts.installation.free_bytes.items():
        if free < _LITTLE_BYTES:
            yield error(
                "disk-full",
                str(path),
                f"it has {free >> 20} MiB left: without space nothing can be stored, so no container starts",
                advice=f"free space on the file system of {path}: df -h {path}",
            )
