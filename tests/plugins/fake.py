# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Installs fake plugins, sets their behaviour, and reads their calls."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cni_bridge_spec import (
    JsonObject,
    JsonValue,
    as_object,
    find_int,
    get_int,
    get_object,
    get_str,
    parse_json,
    render_json,
)

_SOURCE: Final = Path(__file__).with_name("fake_plugin.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One call of a fake plugin.

    Attributes:
        plugin: The name under which it was called.
        verb: The value of CNI_COMMAND.
        environment: Its environment, as far as it concerns CNI and tracing.
        stdin: Its standard input.
        pid: Its process ID.
        netns_inode: The inode of the namespace that was at CNI_NETNS, None if there was none.
        orphaned_plugins: The ID of the process that it left behind, None without one.
    """

    plugin: str
    verb: str
    environment: Mapping[str, str]
    stdin: JsonObject
    pid: int
    netns_inode: int | None
    orphaned_plugins: int | None

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Return the call that a line of the log describes."""
        record = as_object(parse_json(line), "a line of the log")
        return cls(
            plugin=get_str(record, "plugin"),
            verb=get_str(record, "verb"),
            environment={key: str(value) for key, value in get_object(record, "environment").items()},
            stdin=get_object(record, "stdin"),
            pid=get_int(record, "pid"),
            netns_inode=find_int(record, "netns_inode"),
            orphaned_plugins=find_int(record, "left_behind"),
        )


class FakePlugins:
    """A directory of fake plugins."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)

    def install(self, plugin_type: str, **behaviours: JsonValue) -> Path:
        """Install a plugin, or change the behaviour of an installed one.

        Args:
            plugin_type: Its name.
            behaviours: Its behaviour, by verb; `fake_plugin.py` lists the possible ones.
        """
        self.directory.joinpath(f"{plugin_type}.json").write_bytes(render_json(behaviours))
        path = self.directory / plugin_type
        # This interpreter: `python3` may be a shell script that searches for one, which takes longer than the plugin.
        path.write_text(f"#!{sys.executable} -IS\n{_SOURCE.read_text().partition(chr(10))[2]}")
        path.chmod(0o755)
        return path

    @property
    def commands(self) -> tuple[Command, ...]:
        """Every call of any plugin, in order."""
        log = self.directory / "commands.jsonl"
        return tuple(map(Command.from_line, log.read_bytes().splitlines())) if log.exists() else ()

    def deleted(self) -> list[str]:
        """Return the plugins whose DEL has run, in order."""
        return [name for name, verb in self.calls if verb == "DEL"]

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Plugin and verb of every call, in order."""
        return tuple((command.plugin, command.verb) for command in self.commands)
