# SPDX-License-Identifier: Apache-2.0
"""Errors that are not about one plugin; see the package."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from cni_invoker.protocol import ErrorCode

if TYPE_CHECKING:  # plugins, which start anew for each call, do not load it
    from pathlib import Path


PARSING_LIST: Final = "error parsing configuration list:"
PARSING_PLUGIN: Final = "error parsing configuration:"
READING: Final = "error reading"


class CniError(Exception):
    """Base class of all errors of the runtime and of plugins. They can be pickled and copied, with their attributes.

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

    def __reduce__(self) -> tuple[object, ...]:
        # Exception would call the class with `args`, and most of ours have named parameters.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[CniError], args: tuple[object, ...], attributes: Mapping[str, object]) -> CniError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


class InvalidParameter(CniError):
    """CNI does not allow a value; nothing has been executed.

    Attributes:
        parameter: Its name, e.g. `container ID`.
        value: The value.
        reason: The rule that it violates.
    """

    def __init__(self, parameter: str, value: str, reason: str, *, code: int) -> None:
        super().__init__(f"invalid {parameter} {value!r}: {reason}")
        self.parameter = parameter
        self.value = value
        self.reason = reason
        self.code = code


class VersionUnsupported(CniError):
    """This runtime does not support a CNI version; nothing has been executed.

    Attributes:
        version: The version, or all that were offered.
        supported: The versions that this runtime supports, oldest first.
    """

    code = ErrorCode.INCOMPATIBLE_VERSION

    def __init__(self, version: str, supported: Sequence[str]) -> None:
        super().__init__(f"unsupported CNI version {version}; supported are {', '.join(supported)}")
        self.version = version
        self.supported = tuple(supported)


class NoCommonVersion(VersionUnsupported):
    """The plugins of a list have no version in common that the list offers; only VERSION has been executed.

    Attributes:
        network: Name of the list.
        offered: The versions that it offers.
        plugins: The versions that each plugin supports, by type, including IPAM plugins.
    """

    def __init__(
        self, network: str, offered: Sequence[str], plugins: Mapping[str, Sequence[str]], supported: Sequence[str]
    ) -> None:
        super().__init__(", ".join(offered), supported)
        self.network = network
        self.offered = tuple(offered)
        self.plugins = {plugin: tuple(versions) for plugin, versions in plugins.items()}
        self.msg = str(self)

    def __str__(self) -> str:
        supported = {f"plugin {plugin}": versions for plugin, versions in self.plugins.items()}
        supported["this runtime"] = self.supported
        text = "; ".join(f"{name} supports {', '.join(versions)}" for name, versions in supported.items())
        return f"no CNI version fits network {self.network}: its configuration offers {self.version}; {text}"


class VerbUnsupported(CniError):
    """The list's version does not have an operation; nothing has been executed.

    Attributes:
        verb: The operation.
        version: The list's version.
        since: The first version that has it.
    """

    code = ErrorCode.INCOMPATIBLE_VERSION

    def __init__(self, verb: str, version: str, since: str) -> None:
        # Same wording as libcni up to the semicolon.
        super().__init__(
            f'configuration version "{version}" does not support the {verb} command; versions from {since} on do'
        )
        self.verb = verb
        self.version = version
        self.since = since


class NetworkBusy(CniError):
    """Other operations used the network or the container for too long; nothing has been executed. A retry may help.

    Attributes:
        network: Name of the network.
        waited_s: How long the operation waited, in seconds.
    """

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, network: str, *, waited_s: float) -> None:
        super().__init__(
            f"network {network} or the container was still worked on by another operation after {waited_s:g} s"
        )
        self.network = network
        self.waited_s = waited_s


class PluginStillRuns(CniError):
    """A plugin of a killed process cannot be killed; nothing has been executed.

    Attributes:
        container_id: The container that it works for.
        processes: Process ID and command line of each process.
    """

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, container_id: str, processes: Sequence[str]) -> None:
        super().__init__(
            f"a killed process has left a plugin behind that is at work for container {container_id} and does not end: "
            f"process {', '.join(processes)}; end it, and try again"
        )
        self.container_id = container_id
        self.processes = tuple(processes)


class GcFailed(CniError):
    """Plugins failed during garbage collection; all others have run.

    Attributes:
        network: Name of the network.
        errors: The errors, in order.
    """

    def __init__(self, network: str, errors: Sequence[CniError]) -> None:
        super().__init__(f"garbage collection of network {network}: {'; '.join(map(str, errors))}")
        self.network = network
        self.errors = tuple(errors)


class SandboxFailed(CniError):
    """An operation on all attachments of a container failed for some, or there are none; it has tried all of them.

    Attributes:
        container_id: The container's ID.
        errors: The errors, in order; empty if there is no attachment.
    """

    def __init__(self, container_id: str, errors: Sequence[CniError]) -> None:
        reasons = "; ".join(map(str, errors)) or "it has no attachment; add it first"
        super().__init__(f"sandbox {container_id}: {reasons}")
        self.container_id = container_id
        self.errors = tuple(errors)
        self.code = errors[0].code if errors else ErrorCode.UNKNOWN_CONTAINER


class BadConfiguration(CniError):
    """A file or document is not a network configuration.

    The message begins with libcni's words, so that it can be searched for.

    Attributes:
        file: The file; None if the document does not come from a file.
        line: Line of a syntax error, counted from 1; None for other errors.
        column: Column of a syntax error, counted from 1; None for other errors.
        reason: What is wrong.
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
        name: The name; None if any configuration was acceptable.
        known: The existing names, most similar first.
        directories: The directories that were searched.
        problems: The files that could not be used; the missing one may be among them.
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
        self.name = name
        self.known = (*nearest, *(other for other in known if other not in nearest))
        self.directories = tuple(directories)
        self.problems = tuple(problems)
        searched = ", ".join(map(str, directories)) or "no directory at all"
        # Same wording as libcni up to the semicolon.
        missing = "no net configurations found" if name is None else f'no net configuration with name "{name}"'
        text = f"{missing} in {searched}; there are: {', '.join(self.known) or 'none'}"
        if not self.known:
            text += "; put a .conflist file there"
        elif nearest:
            text += f"; did you mean {nearest[0]}?"
        if problems:
            text += f"; unusable: {'; '.join(map(str, problems))}"
        super().__init__(text)


class AttachmentExists(CniError):
    """ADD of an attachment that exists, or whose DEL is pending; nothing has been executed.

    Attributes:
        network: Name of the network.
        container_id: The container's ID.
        ifname: Name of the interface.
    """

    def __init__(self, network: str, container_id: str, ifname: str) -> None:
        super().__init__(
            f"{ifname} of {container_id} is already attached to {network}, or its DEL is pending; delete it first, "
            "with force=True if its DEL cannot succeed"
        )
        self.network = network
        self.container_id = container_id
        self.ifname = ifname


class NotAttached(CniError):
    """CHECK of an attachment that does not exist or is incomplete; nothing has been executed.

    Attributes:
        network: Name of the network.
        container_id: The container's ID.
        ifname: Name of the interface.
        delete_pending: Whether an ADD or a DEL has begun, so that a DEL must complete.
    """

    code = ErrorCode.UNKNOWN_CONTAINER

    def __init__(self, network: str, container_id: str, ifname: str, *, delete_pending: bool) -> None:
        incomplete = "its ADD or its DEL has not completed; delete it, and add it again"
        why = incomplete if delete_pending else "add it first"
        super().__init__(f"{ifname} of {container_id} is not attached to {network}: {why}")
        self.network = network
        self.container_id = container_id
        self.ifname = ifname
        self.delete_pending = delete_pending


class CacheError(CniError):
    """The attachment cache cannot be read or written.

    Attributes:
        place: The affected file or object.
        reason: What is wrong.
    """

    code = ErrorCode.IO_FAILURE
    phrase: str = ""
    """libcni's words, so that the message can be searched for."""

    def __init__(self, place: "Path | str", reason: str) -> None:
        super().__init__(f"{self.phrase}attachment cache: {place}: {reason}")
        self.place = place
        self.reason = reason


class CacheDamaged(CacheError):
    """A cached attachment is unreadable."""

    code = ErrorCode.DECODING_FAILURE
    phrase = "failed to get cached result: "


class CacheUnknown(CacheError):
    """A cached attachment has a format that this version does not know; it is left unchanged."""

    code = ErrorCode.DECODING_FAILURE
    phrase = "failed to get cached result: "
