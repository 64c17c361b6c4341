# SPDX-License-Identifier: Apache-2.0
"""How plugins are found and executed: on this host, or in any other way that a caller provides.

The counterpart of libcni's interface `invoke.Exec`.
"""

import os
import stat
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import iscoroutinefunction
from pathlib import Path

from cni_invoker.documents.jsontypes import JsonValue, render_json
from cni_invoker.errors import PluginNotFound
from cni_invoker.execution.process import Ended
from cni_invoker.inputs.given import require_type
from cni_invoker.inputs.names import check_plugin_type
from cni_invoker.protocol import Verb


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginCall:
    """One execution of a plugin.

    Attributes:
        plugin: The plugin's type.
        verb: The operation.
        path: The executable, as `PluginExec.find` returned it.
        environment: Its whole environment.
        stdin: Its whole standard input, a JSON object.
        run: Runs the executable as a process of this host, with the words of a command before it, and with the
            runtime's limits.
    """

    plugin: str
    verb: Verb
    path: Path
    environment: Mapping[str, str] = field(hash=False)
    stdin: bytes
    run: Callable[[Sequence[str]], Awaitable[Ended]] = field(repr=False, compare=False)


def find_plugin(plugin_type: str, plugin_dirs: Sequence[Path]) -> Path:
    """Return the first executable file called `plugin_type` in the plugin directories.

    Unlike libcni's `FindInPath`, it skips files that are not executable (because of their mode, or a file system that
    is mounted `noexec`), and reports them if it finds no other.

    Raises:
        PluginNotFound: No directory has an executable file of that name.
        InvalidParameter: The type cannot be the name of a file.
    """
    check_plugin_type(plugin_type)
    not_executable = []
    for directory in plugin_dirs:
        path = f"{directory}/{plugin_type}"  # an attachment needs this ten times; a Path takes three times as long
        if os.access(path, os.X_OK) and _is_file(path):
            return Path(path)
        if _is_file(path):
            not_executable.append(Path(path))
    raise PluginNotFound(plugin=plugin_type, directories=plugin_dirs, not_executable=not_executable)


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116  # see above
    except OSError:
        return False


class PluginExec:
    """Finds and executes plugins on this host. Other ways are subclasses."""

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return the executable of a plugin.

        Raises:
            PluginNotFound: No directory has it.
        """
        return find_plugin(plugin_type, directories)

    async def run(self, call: PluginCall) -> Ended:
        """Execute a plugin and return how it ended.

        It is cancelled if the operation is. It must end in time by itself unless it uses `call.run`, which does.

        Raises:
            OSError: It cannot be started.
        """
        return await call.run(())


def require_exec(plugin_exec: PluginExec) -> None:
    """Raise `TypeError` if this is not a `PluginExec`, or if it does not run plugins asynchronously."""
    if not iscoroutinefunction(require_type(plugin_exec, PluginExec, "plugin_exec").run):
        raise TypeError(
            f"run of plugin_exec must be `async def`, as that of PluginExec; {plugin_exec!r:.100} has another"
        )


class NsenterExec(PluginExec):
    """Executes plugins in namespaces of another process, for a runtime that is in a container.

    Args:
        target: The process ID, normally 1.
        namespaces: Options of nsenter(1) that choose the namespaces.
        root: Where the file system of that process is found, to look for plugins.
    """

    def __init__(
        self, target: int = 1, namespaces: Sequence[str] = ("--mount", "--net"), root: Path | None = None
    ) -> None:
        self._prefix = ("nsenter", f"--target={target}", *namespaces, "--")
        self._root = Path(f"/proc/{target}/root") if root is None else root

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return the executable, as that process sees it."""
        found = find_plugin(plugin_type, [self._root / str(directory).lstrip("/") for directory in directories])
        return Path("/") / found.relative_to(self._root)

    async def run(self, call: PluginCall) -> Ended:
        """Execute the plugin there."""
        return await call.run(self._prefix)


class FakeExec(PluginExec):
    """Executes nothing, for tests of programs that use a runtime.

    Args:
        answer: Returns a plugin's exit status and what it prints.
    """

    def __init__(self, answer: Callable[[PluginCall], tuple[int, JsonValue]]) -> None:
        self._answer = answer

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return a path in the first directory, whether there is a file or not."""
        return Path(*directories[:1], plugin_type)

    async def run(self, call: PluginCall) -> Ended:
        """Return the answer."""
        status, document = self._answer(call)
        return Ended(
            status=status,
            timed_out=False,
            stdout=render_json(document),
            stdout_complete=True,
            stderr=b"",
            duration_s=0.0,
        )


class RecordingExec(PluginExec):
    """Remembers all executions, in order of their ends.

    Args:
        inner: Executes them.

    Attributes:
        calls: Each execution, and how it ended.
    """

    def __init__(self, inner: PluginExec | None = None) -> None:
        self._inner = PluginExec() if inner is None else inner
        self.calls: list[tuple[PluginCall, Ended]] = []

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:
        """Return the executable of a plugin."""
        return self._inner.find(plugin_type, directories)

    async def run(self, call: PluginCall) -> Ended:
        """Execute a plugin and remember it."""
        ended = await self._inner.run(call)
        self.calls.append((call, ended))
        return ended
