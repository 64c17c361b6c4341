# SPDX-License-Identifier: Apache-2.0
"""The errors of this package.

```
CniError
├── InvalidParameter
├── VersionUnsupported
├── VerbUnsupported
├── NetworkBusy
├── PluginStillRuns
├── GcFailed
├── BadConfiguration
├── ConfigurationNotFound
├── BadResult
└── PluginError
    ├── PluginNotFound
    ├── PluginNotStarted
    ├── PluginTimeout
    └── PluginFailed
```

Every error has a `code` from the CNI specification's table, or 999 (`ErrorCode`). Messages are written for the operator
who has to fix the problem; up to the first semicolon they are libcni's, where libcni has the same error.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # plugins, which start anew for each call, do not load it
    from pathlib import Path

__all__ = [
    "BadConfiguration",
    "BadResult",
    "CniError",
    "ConfigurationNotFound",
    "GcFailed",
    "InvalidParameter",
    "NetworkBusy",
    "PluginError",
    "PluginFailed",
    "PluginNotFound",
    "PluginNotStarted",
    "PluginStillRuns",
    "PluginTimeout",
    "VerbUnsupported",
    "VersionUnsupported",
]

PARSING_LIST: Final = "error parsing configuration list:"
PARSING_PLUGIN: Final = "error parsing configuration:"
READING: Final = "error reading"
_SHOWN_CHARACTERS: Final = 4000
"""How much of a plugin's standard error a message shows, from the end; the error's attributes have more."""


class ErrorCode(IntEnum):
    """The kind of an error (CNI SPEC "Error", well-known codes). Plugin-specific codes start at 100."""

    INCOMPATIBLE_VERSION = 1
    UNSUPPORTED_FIELD = 2
    UNKNOWN_CONTAINER = 3
    """The container is unknown to the plugin: it needs no DEL."""
    INVALID_ENVIRONMENT = 4
    """A variable is missing or invalid, or a name or path that would be passed in one."""
    IO_FAILURE = 5
    DECODING_FAILURE = 6
    INVALID_CONFIGURATION = 7
    INVALID_NAMESPACE = 8
    """Not in the specification: the namespace is the plugin's own, as in the reference implementation."""
    TRY_AGAIN_LATER = 11
    NOT_AVAILABLE = 50
    """STATUS: no ADD can succeed."""
    LIMITED_CONNECTIVITY = 51
    """The same, and existing attachments may not work as they should."""
    INTERNAL = 999
    """Not in the specification: any other error, as in the reference implementation."""


class CniError(Exception):
    """Base class of all errors of the runtime and of plugins.

    Attributes:
        code: Error code of the CNI specification (`ErrorCode`), or a plugin-specific one.
        msg: The reason, never empty: the plugin's own message if it is a plugin's error, else the same as `str`.
        details: The plugin's details, empty if there are none.
    """

    code: int = ErrorCode.INTERNAL
    details: str = ""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.msg = text


class InvalidParameter(CniError):
    """CNI does not allow a value; nothing has been executed."""

    def __init__(self, parameter: str, value: str, reason: str, *, code: int = ErrorCode.INVALID_ENVIRONMENT) -> None:
        super().__init__(f"invalid {parameter} {value!r}: {reason}")
        self.code = code


class VersionUnsupported(CniError):
    """This runtime does not support a CNI version, or has none in common with a list and its plugins.

    At most VERSION has been executed.
    """

    code = ErrorCode.INCOMPATIBLE_VERSION


class VerbUnsupported(CniError):
    """The list's version does not have an operation; nothing has been executed."""

    code = ErrorCode.INCOMPATIBLE_VERSION


class NetworkBusy(CniError):
    """Other operations used the network or the container for too long; nothing has been executed. A retry may help."""

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, network: str, *, waited_s: float) -> None:
        super().__init__(f"another operation still used network {network} or the container after {waited_s:g} s")


class PluginStillRuns(CniError):
    """A plugin of a killed process cannot be killed; nothing has been executed."""

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, container_id: str, processes: Sequence[str]) -> None:
        super().__init__(
            f"a plugin of a killed process still runs for container {container_id} and cannot be killed: "
            f"process {', '.join(processes)}; kill it, and try again"
        )


class GcFailed(CniError):
    """Plugins failed during garbage collection, with these `errors`; all others have run."""

    def __init__(self, network: str, errors: Sequence[CniError]) -> None:
        super().__init__(f"garbage collection of network {network}: {'; '.join(map(str, errors))}")
        self.errors = tuple(errors)


class BadConfiguration(CniError):
    """A file or document is not a network configuration.

    Attributes:
        file: None if the document does not come from a file.
        line, column: Those of a syntax error, counted from 1; None for other errors.
    """

    code = ErrorCode.INVALID_CONFIGURATION

    def __init__(
        self,
        reason: str,
        *,
        file: "Path | None",
        line: int | None = None,
        column: int | None = None,
        phrase: str = PARSING_LIST,
    ) -> None:
        place = "" if file is None else f" {file}"
        if line is not None:
            place += f", line {line}, column {column}"
        super().__init__(f"{phrase}{place}{':' if place else ''} {reason}")
        self.file = file
        self.line = line
        self.column = column
        self.reason = reason


class ConfigurationNotFound(CniError):
    """There is no network configuration of that name, or none at all.

    Attributes:
        problems: The files that could not be used; the missing one may be among them.
        own: Those of them with the name in their own, and directories: then the text is about them alone.
    """

    code = ErrorCode.INVALID_CONFIGURATION

    def __init__(
        self,
        name: str | None,
        *,
        known: Sequence[str],
        directories: "Sequence[Path]",
        problems: Sequence[BadConfiguration],
    ) -> None:
        from difflib import get_close_matches  # noqa: PLC0415  # most programs never need it

        nearest = get_close_matches(name or "", known, n=len(known), cutoff=0.5) if known else []
        names = (*nearest, *(other for other in known if other not in nearest))
        self.problems = tuple(problems)
        self.own = tuple(
            one
            for one in problems
            if one.file is not None and (one.file in directories or (name is not None and name in one.file.stem))
        )
        searched = ", ".join(map(str, directories)) or "no directory at all"
        missing = "no net configurations found" if name is None else f'no net configuration with name "{name}"'
        text = f"{missing} in {searched}; there are: {', '.join(names) or 'none'}"
        if self.own:
            text = f"{missing}: {'; '.join(map(str, self.own))}"
        elif not names:
            text += "; put a .conflist file there"
        elif nearest:
            text += f"; did you mean {nearest[0]}?"
        if problems and not self.own:
            text += f"; unusable: {'; '.join(map(str, problems))}"
        super().__init__(text)


class PluginError(CniError):
    """An error of one plugin; `plugin` is its type, e.g. `bridge`."""

    def __init__(self, text: str, *, plugin: str) -> None:
        super().__init__(text)
        self.plugin = plugin


class PluginNotFound(PluginError):
    """No plugin directory has the plugin; nothing has been executed.

    Attributes:
        not_executable: Files of that name that exist but are not executable.
    """

    def __init__(self, *, plugin: str, directories: "Sequence[Path]", not_executable: "Sequence[Path]" = ()) -> None:
        self.directories = tuple(directories)
        self.not_executable = tuple(not_executable)
        hint = f"; {self.where}" if not_executable else ""
        super().__init__(
            f'failed to find plugin "{plugin}" in path [{", ".join(map(str, directories))}]{hint}', plugin=plugin
        )

    @property
    def where(self) -> str:
        """Where it was searched, for messages that already name the plugin."""
        if self.not_executable:
            return f"found but not executable: {', '.join(map(str, self.not_executable))}"
        return f"not found in {', '.join(map(str, self.directories)) or 'no directory at all'}"


class PluginNotStarted(PluginError):
    """The kernel could not execute a plugin; it has not run.

    Attributes:
        path: None for a plugin in process, for which there was no thread.
        reason: The kernel's error text.
    """

    code = ErrorCode.IO_FAILURE

    def __init__(self, *, plugin: str, verb: str, path: "Path | None", reason: str) -> None:
        super().__init__(
            f"{failed_words(plugin, verb)}: cannot execute {path or 'it in process'}: {reason}", plugin=plugin
        )
        self.path = path
        self.reason = reason


class PluginTimeout(PluginError):
    """A plugin did not end in time; it and every process in its session have been killed, unless it runs in process.

    Attributes:
        started: False if it has not run: it was still waiting for a free slot, or for an earlier call in this process.
    """

    def __init__(
        self,
        *,
        plugin: str,
        verb: str,
        path: "Path | None",
        timeout_s: float,
        started: bool,
        stderr_tail: Sequence[str] = (),
    ) -> None:
        if started and path is None:
            what = f"it timed out after {timeout_s:g} s and goes on, because it runs in this process"
        elif started:
            what = f"it timed out after {timeout_s:g} s and was killed ({path})"
        elif path is None:
            what = f"it was not started within {timeout_s:g} s: an earlier call in this process still runs"
        else:
            what = f"it was not started within {timeout_s:g} s: too many plugins are running"
        super().__init__(f"{failed_words(plugin, verb)}: {what}{_shown(stderr_tail)}", plugin=plugin)
        self.timeout_s = timeout_s
        self.started = started


class PluginFailed(PluginError):
    """A plugin ended with an error.

    Attributes:
        msg: The plugin's message. If it printed none, libcni's words ("netplugin failed"), followed by its output.
        exit_status: None if a signal killed it or if the status was lost.
        signal: The signal that killed it, e.g. `SIGSEGV`; None if there was none or if that was lost.
        stderr_tail: The last lines of its standard error.
        crash: How it crashed: the signal, or that it ended as Go's programs do after a panic. Otherwise None.
    """

    def __init__(
        self,
        *,
        plugin: str,
        verb: str,
        path: "Path | None",
        network: str = "",
        container_id: str = "",
        code: int,
        msg: str,
        details: str = "",
        exit_status: int | None,
        signal: str | None,
        stderr_tail: Sequence[str] = (),
        duration_s: float,
        crash: str | None = None,
    ) -> None:
        message = f"{msg}; {details}" if details else msg
        facts = f"code {code}, {describe_end(exit_status, signal)} after {duration_s:.3f} s, {path or 'in process'}"
        for what, name in (("network", network), ("container", container_id)):
            facts += f", {what} {name}" if name else ""
        said = "" if " | ".join(stderr_tail) in msg else _shown(stderr_tail)
        super().__init__(f"{failed_words(plugin, verb)}: {message} ({facts}){said}", plugin=plugin)
        self.verb = verb
        self.code = code
        self.msg = msg
        self.details = details
        self.exit_status = exit_status
        self.signal = signal
        self.stderr_tail = tuple(stderr_tail)
        self.duration_s = duration_s
        self.crash = crash

    @property
    def is_transient(self) -> bool:
        """Whether the plugin reports that the same request may succeed later (code 11)."""
        return self.code == ErrorCode.TRY_AGAIN_LATER


class BadResult(CniError):
    """Something is not a CNI result. A plugin that printed it has done its work and needs a DEL."""

    code = ErrorCode.DECODING_FAILURE

    def __init__(
        self, reason: str, *, plugin: str | None = None, verb: str = "", stderr_tail: Sequence[str] = ()
    ) -> None:
        origin = "" if plugin is None else f"{failed_words(plugin, verb)}: "
        super().__init__(f"{origin}bad CNI result: {reason}{_shown(stderr_tail)}")
        self.reason = reason


def describe_end(exit_status: int | None, signal: str | None) -> str:
    """Return how a plugin ended; without both values, that its status was lost."""
    if signal is not None:
        return f"killed by {signal}"
    return "exit status unknown (is SIGCHLD ignored?)" if exit_status is None else f"exit status {exit_status}"


def failed_words(plugin: str, verb: str) -> str:
    """Return libcni's words for a plugin that failed, so that they can be searched for."""
    return f'plugin type="{plugin}" failed ({"delete" if verb == "DEL" else verb.lower()})'


def _shown(stderr_tail: Sequence[str]) -> str:
    words = " | ".join(stderr_tail)
    if len(words) > _SHOWN_CHARACTERS:
        words = f"…{words[-_SHOWN_CHARACTERS:]}"
    return f"; standard error ends with: {words}" if words else ""
