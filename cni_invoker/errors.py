# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What can go wrong between a configuration file and a plugin's answer.

```
CniError
├── InvalidParameter       a container ID, name, path or argument that CNI does not allow
├── VersionUnsupported     a CNI version that this runtime does not speak
├── BadConfiguration       a file or document that is no network configuration
├── ConfigurationNotFound  no configuration of that name, or none at all
├── BadResult              a document, or what a plugin printed, that is no result
└── PluginError            something about one plugin
    ├── PluginNotFound     not in any plugin directory
    ├── PluginNotStarted   there, but the kernel does not execute it
    ├── PluginTimeout      did not end in time, and was killed
    └── PluginFailed       ended with an error: its code, message, details and standard error
```

Every error has the `code` of the CNI specification's table ("Error", well-known codes); 999 stands for what has none
there, as in the reference implementation. Messages are written for the operator who has to repair it.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

__all__ = [
    "BadConfiguration",
    "BadResult",
    "CniError",
    "ConfigurationNotFound",
    "InvalidParameter",
    "PluginError",
    "PluginFailed",
    "PluginNotFound",
    "PluginNotStarted",
    "PluginTimeout",
    "VersionUnsupported",
]


class CniError(Exception):
    """Anything that goes wrong in the runtime or in a plugin.

    Attributes:
        code: Error code of the CNI specification.
    """

    code: int = 999


class InvalidParameter(CniError):
    """A value that CNI does not allow in its place; nothing has been executed.

    Attributes:
        parameter: What it is, e.g. `container ID`.
        value: The value.
        reason: The rule it breaks.
    """

    def __init__(self, parameter: str, value: str, reason: str, *, code: int) -> None:
        super().__init__(f"invalid {parameter} {value!r}: {reason}")
        self.parameter = parameter
        self.value = value
        self.reason = reason
        self.code = code


class VersionUnsupported(CniError):
    """A CNI version that this runtime does not speak; nothing has been executed.

    Attributes:
        version: The version, or all that were offered.
        supported: The versions this runtime speaks, oldest first.
    """

    code = 1

    def __init__(self, version: str, supported: Sequence[str]) -> None:
        super().__init__(f"unsupported CNI version {version}; supported are {', '.join(supported)}")
        self.version = version
        self.supported = tuple(supported)


class BadConfiguration(CniError):
    """A file or document that is no network configuration.

    Attributes:
        file: The file, None for a document from elsewhere.
        line: Line of the fault, counted from 1; None where it is not the syntax that is wrong.
        column: Column of the fault, counted from 1; None as `line`.
        reason: What is wrong.
    """

    code = 7

    def __init__(self, reason: str, *, file: Path | None, line: int | None = None, column: int | None = None) -> None:
        place = "network configuration" if file is None else str(file)
        if line is not None:
            place += f", line {line}, column {column}"
        super().__init__(f"{place}: {reason}")
        self.file = file
        self.line = line
        self.column = column
        self.reason = reason


class ConfigurationNotFound(CniError):
    """No network configuration of that name, or none at all.

    Attributes:
        name: The name, None if any would have done.
        known: The names there are, the nearest first.
        directories: Where they were looked for.
        problems: The files that could not be used; one of them may be the one that was meant.
    """

    code = 7

    def __init__(
        self,
        name: str | None,
        *,
        known: Sequence[str],
        directories: Sequence[Path],
        problems: Sequence[BadConfiguration],
    ) -> None:
        nearest = get_close_matches(name or "", known, n=len(known), cutoff=0.5) if known else []
        self.name = name
        self.known = (*nearest, *(other for other in known if other not in nearest))
        self.directories = tuple(directories)
        self.problems = tuple(problems)
        searched = ", ".join(map(str, directories)) or "no directory at all"
        called = "" if name is None else f" named {name!r}"
        text = f"no network configuration{called} in {searched}; there are: {', '.join(self.known) or 'none'}"
        if problems:
            text += f"; unusable: {'; '.join(map(str, problems))}"
        super().__init__(text)


class PluginError(CniError):
    """Something about one plugin.

    Attributes:
        plugin: The plugin's type, e.g. `bridge`.
    """

    def __init__(self, text: str, *, plugin: str) -> None:
        super().__init__(text)
        self.plugin = plugin


class PluginNotFound(PluginError):
    """A plugin is in none of the plugin directories; nothing has been executed.

    Attributes:
        directories: Where it was looked for.
        not_executable: Files of that name that are there, but may not be executed.
    """

    def __init__(self, *, plugin: str, directories: Sequence[Path], not_executable: Sequence[Path] = ()) -> None:
        text = f'failed to find plugin "{plugin}" in path [{", ".join(map(str, directories))}]'
        if not_executable:
            text += f"; found but not executable: {', '.join(map(str, not_executable))}"
        super().__init__(text, plugin=plugin)
        self.directories = tuple(directories)
        self.not_executable = tuple(not_executable)


class PluginNotStarted(PluginError):
    """The kernel does not execute a plugin; nothing of it has run.

    Attributes:
        verb: What it was to do.
        path: The executable.
        reason: The kernel's own words.
    """

    code = 5

    def __init__(self, *, plugin: str, verb: str, path: Path, reason: str) -> None:
        super().__init__(f"{_failed(plugin, verb)}: cannot execute {path}: {reason}", plugin=plugin)
        self.verb = verb
        self.path = path
        self.reason = reason


class PluginTimeout(PluginError):
    """A plugin did not end in time; it and all it started in its session have been killed.

    Attributes:
        verb: What it was to do.
        timeout_s: The time it had, in seconds.
        started: False if it was still waiting for its turn, and has not run at all.
        stderr_tail: The last lines of its standard error.
    """

    def __init__(
        self, *, plugin: str, verb: str, timeout_s: float, started: bool, stderr_tail: Sequence[str] = ()
    ) -> None:
        what = "was killed, having not ended" if started else "did not get its turn, with too many others running,"
        text = f"{_failed(plugin, verb)}: it {what} within {timeout_s:g} s"
        super().__init__(text + _shown(stderr_tail), plugin=plugin)
        self.verb = verb
        self.timeout_s = timeout_s
        self.started = started
        self.stderr_tail = tuple(stderr_tail)


class PluginFailed(PluginError):
    """A plugin ended with an error.

    Attributes:
        verb: What it was to do.
        path: The executable.
        msg: The plugin's own message, or what is known without one.
        details: The plugin's own details, empty if it gave none.
        exit_status: Its exit status, None if a signal ended it.
        signal: The signal that ended it, e.g. `SIGSEGV`.
        stderr_tail: The last lines of its standard error.
        duration_s: How long it ran, in seconds.
    """

    def __init__(
        self,
        *,
        plugin: str,
        verb: str,
        path: Path,
        code: int,
        msg: str,
        details: str = "",
        exit_status: int | None,
        signal: str | None,
        stderr_tail: Sequence[str] = (),
        duration_s: float,
    ) -> None:
        message = f"{msg}; {details}" if details else msg
        end = f"exit status {exit_status}" if signal is None else f"killed by {signal}"
        facts = f"code {code}, {end} after {duration_s:.3f} s, {path}"
        super().__init__(f"{_failed(plugin, verb)}: {message} ({facts}){_shown(stderr_tail)}", plugin=plugin)
        self.verb = verb
        self.path = path
        self.code = code
        self.msg = msg
        self.details = details
        self.exit_status = exit_status
        self.signal = signal
        self.stderr_tail = tuple(stderr_tail)
        self.duration_s = duration_s


class BadResult(CniError):
    """What should be a CNI result is none. If a plugin has just printed it, it has done its work: a DEL is owed.

    Attributes:
        reason: What is wrong with the result.
        plugin: The type of the plugin that printed it, None for a document from elsewhere.
        stderr_tail: The last lines of that plugin's standard error.
    """

    code = 6

    def __init__(
        self, reason: str, *, plugin: str | None = None, verb: str = "", stderr_tail: Sequence[str] = ()
    ) -> None:
        origin = "" if plugin is None else f"{_failed(plugin, verb)}: "
        super().__init__(f"{origin}bad CNI result: {reason}{_shown(stderr_tail)}")
        self.reason = reason
        self.plugin = plugin
        self.stderr_tail = tuple(stderr_tail)


def _failed(plugin: str, verb: str) -> str:
    # The words of libcni: people search for them, and know what they mean.
    return f'plugin type="{plugin}" failed ({"delete" if verb == "DEL" else verb.lower()})'


def _shown(stderr_tail: Sequence[str]) -> str:
    return f"; its last words on standard error: {' | '.join(stderr_tail)}" if stderr_tail else ""
