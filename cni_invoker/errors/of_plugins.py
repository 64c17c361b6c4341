# SPDX-License-Identifier: Apache-2.0
"""Errors about one plugin: they carry facts about an execution; see the package."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cni_invoker.errors.of_runtime import CniError
from cni_invoker.protocol import ErrorCode

if TYPE_CHECKING:  # plugins, which start anew for each call, do not load it
    from pathlib import Path

_SHOWN_CHARACTERS: Final = 4000
"""How much of a plugin's standard error a message shows, from the end; the error's attributes have more."""


class PluginError(CniError):
    """An error of one plugin.

    Attributes:
        plugin: The plugin's type, e.g. `bridge`.
    """

    def __init__(self, text: str, *, plugin: str) -> None:
        super().__init__(text)
        self.plugin = plugin


class PluginNotFound(PluginError):
    """No plugin directory has the plugin; nothing has been executed.

    Attributes:
        directories: The directories that were searched.
        not_executable: Files of that name that exist but are not executable.
    """

    def __init__(self, *, plugin: str, directories: "Sequence[Path]", not_executable: "Sequence[Path]" = ()) -> None:
        # Same wording as libcni up to the semicolon.
        text = f'failed to find plugin "{plugin}" in path [{", ".join(map(str, directories))}]'
        self.directories = tuple(directories)
        self.not_executable = tuple(not_executable)
        if not_executable:
            text += f"; {self._not_executable_text}"
        super().__init__(text, plugin=plugin)

    @property
    def where(self) -> str:
        """Where it was searched, for messages that already name the plugin."""
        searched = ", ".join(map(str, self.directories)) or "no directory at all"
        return self._not_executable_text if self.not_executable else f"not found in {searched}"

    @property
    def _not_executable_text(self) -> str:
        return f"found but not executable: {', '.join(map(str, self.not_executable))}"


class PluginNotStarted(PluginError):
    """The kernel could not execute a plugin; it has not run.

    Attributes:
        verb: The operation.
        path: The executable.
        reason: The kernel's error text.
    """

    code = ErrorCode.IO_FAILURE

    def __init__(self, *, plugin: str, verb: str, path: "Path", reason: str) -> None:
        super().__init__(f"{failed_words(plugin, verb)}: cannot execute {path}: {reason}", plugin=plugin)
        self.verb = verb
        self.path = path
        self.reason = reason


class PluginTimeout(PluginError):
    """A plugin did not end in time; it and every process in its session have been killed.

    Attributes:
        verb: The operation.
        path: The executable.
        timeout_s: The limit, in seconds.
        started: False if it was still waiting for a free slot and has not run.
        stderr_tail: The last lines of its standard error.
    """

    def __init__(
        self, *, plugin: str, verb: str, path: "Path", timeout_s: float, started: bool, stderr_tail: Sequence[str] = ()
    ) -> None:
        if started:
            what = f"it timed out after {timeout_s:g} s and was killed ({path})"
        else:
            what = f"it was not started within {timeout_s:g} s: too many plugins are running"
        text = f"{failed_words(plugin, verb)}: {what}"
        super().__init__(text + _shown(stderr_tail), plugin=plugin)
        self.verb = verb
        self.path = path
        self.timeout_s = timeout_s
        self.started = started
        self.stderr_tail = tuple(stderr_tail)


class PluginFailed(PluginError):
    """A plugin ended with an error.

    Attributes:
        verb: The operation.
        path: The executable.
        network: Name of the network; empty for VERSION.
        container_id: The container's ID; empty if the operation is for none.
        msg: The plugin's message. If it printed none, libcni's words ("netplugin failed"), with what it wrote.
        details: The plugin's details, empty if it gave none.
        exit_status: Its exit status; None if a signal ended it or if the status was lost.
        signal: The signal that ended it, e.g. `SIGSEGV`; None if there was none or if that was lost.
        stderr_tail: The last lines of its standard error.
        duration_s: How long it ran, in seconds.
        crash: How it crashed, in one line: the signal, or Go's panic. None if it ended by itself. It is not in the
            message.
    """

    def __init__(
        self,
        *,
        plugin: str,
        verb: str,
        path: "Path",
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
        end = describe_end(exit_status, signal)
        facts = f"code {code}, {end} after {duration_s:.3f} s, {path}"
        for what, name in (("network", network), ("container", container_id)):
            facts += f", {what} {name}" if name else ""
        said = "" if " | ".join(stderr_tail) in msg else _shown(stderr_tail)
        super().__init__(f"{failed_words(plugin, verb)}: {message} ({facts}){said}", plugin=plugin)
        self.verb = verb
        self.path = path
        self.network = network
        self.container_id = container_id
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
    """A document or a plugin's output is not a CNI result. A plugin that printed it has done its work and needs a DEL.

    Attributes:
        reason: What is wrong with the result.
        plugin: The type of the plugin that printed it; None for other documents.
        stderr_tail: The last lines of that plugin's standard error.
    """

    code = ErrorCode.DECODING_FAILURE

    def __init__(
        self, reason: str, *, plugin: str | None = None, verb: str = "", stderr_tail: Sequence[str] = ()
    ) -> None:
        origin = "" if plugin is None else f"{failed_words(plugin, verb)}: "
        super().__init__(f"{origin}bad CNI result: {reason}{_shown(stderr_tail)}")
        self.reason = reason
        self.plugin = plugin
        self.stderr_tail = tuple(stderr_tail)


def describe_end(exit_status: int | None, signal: str | None) -> str:
    """Return how a plugin ended; without both values, that its status was lost."""
    if signal is not None:
        return f"killed by {signal}"
    return "exit status lost, as where SIGCHLD is ignored," if exit_status is None else f"exit status {exit_status}"


def failed_words(plugin: str, verb: str) -> str:
    """Return libcni's words for a plugin that failed, so that they can be searched for."""
    return f'plugin type="{plugin}" failed ({"delete" if verb == "DEL" else verb.lower()})'


def _shown(stderr_tail: Sequence[str]) -> str:
    words = " | ".join(stderr_tail)
    if len(words) > _SHOWN_CHARACTERS:
        words = f"…{words[-_SHOWN_CHARACTERS:]}"
    return f"; its last words on standard error: {words}" if words else ""
