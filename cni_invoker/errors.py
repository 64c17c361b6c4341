# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What can go wrong between a configuration file and a plugin's answer.

```
CniError
├── InvalidParameter       a container ID, name, path or argument that CNI does not allow
├── VersionUnsupported     a CNI version that this runtime does not speak
│   └── NoCommonVersion    no version that a list offers is spoken by all of its plugins
├── VerbUnsupported        an operation that the list's version does not have
├── NetworkBusy            others worked on the network or the container for too long
├── AddressClaimed         a DEL that waits for an attachment that is being made with the same address
├── PluginStillRuns        a plugin that a killed process has left behind, and that cannot be ended
├── GcFailed               what went wrong in a garbage collection, which went on all the same
├── BadConfiguration       a file or document that is no network configuration
├── ConfigurationNotFound  no configuration of that name, or none at all
├── BadResult              a document, or what a plugin printed, that is no result
├── AttachmentExists       an ADD of what has been added already
├── NotAttached            a CHECK of what has not been added
├── CacheError             the attachment cache cannot be read or written
│   ├── CacheDamaged       what was kept of an attachment cannot be understood any more
│   └── CacheUnknown       what was kept of an attachment is of a kind that this version does not know
└── PluginError            something about one plugin
    ├── PluginNotFound     not in any plugin directory
    ├── PluginNotStarted   there, but the kernel does not execute it
    ├── PluginTimeout      did not end in time, and was killed
    └── PluginFailed       ended with an error: its code, message, details and standard error
```

Every error has the `code` of the CNI specification's table, or 999 (`codes`). Messages are written for the operator who
has to repair it. Those about plugins are in `plugin_errors`.
"""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from cni_invoker.codes import ErrorCode

__all__ = [
    "AddressClaimed",
    "AttachmentExists",
    "BadConfiguration",
    "CacheDamaged",
    "CacheError",
    "CacheUnknown",
    "CniError",
    "ConfigurationNotFound",
    "GcFailed",
    "InvalidParameter",
    "NetworkBusy",
    "NoCommonVersion",
    "NotAttached",
    "PluginStillRuns",
    "VerbUnsupported",
    "VersionUnsupported",
]


class CniError(Exception):
    """Anything that goes wrong in the runtime or in a plugin.

    Attributes:
        code: Error code of the CNI specification (`ErrorCode`), or a plugin's own.
    """

    code: int = ErrorCode.INTERNAL


class AddressClaimed(CniError):
    """The DEL of a plugin has to wait: an attachment that is being made may receive one of the addresses.

    The rules for the address are not the new attachment's yet, and its plugins may fail: then nobody but this DEL
    removes them.

    Attributes:
        plugin: The plugin's type.
        claimant: Container ID of the new attachment.
    """

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, plugin: str, claimant: str) -> None:
        super().__init__(
            f"the DEL of plugin {plugin} waits for container {claimant}, which is being added with the same address"
        )
        self.plugin = plugin
        self.claimant = claimant


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

    code = ErrorCode.INCOMPATIBLE_VERSION

    def __init__(self, version: str, supported: Sequence[str]) -> None:
        super().__init__(f"unsupported CNI version {version}; supported are {', '.join(supported)}")
        self.version = version
        self.supported = tuple(supported)


class NoCommonVersion(VersionUnsupported):
    """No version that a list offers is spoken by all of its plugins; nothing but VERSION has been executed.

    Attributes:
        network: Name of the list.
        offered: The versions that it offers.
        plugins: The versions that each of its plugins speaks, those for IPAM included, by type.
    """

    def __init__(
        self, network: str, offered: Sequence[str], plugins: Mapping[str, Sequence[str]], supported: Sequence[str]
    ) -> None:
        super().__init__(", ".join(offered), supported)
        self.network = network
        self.offered = tuple(offered)
        self.plugins = {plugin: tuple(versions) for plugin, versions in plugins.items()}

    def __str__(self) -> str:
        speakers = {f"plugin {plugin}": versions for plugin, versions in self.plugins.items()}
        speakers["this runtime"] = self.supported
        spoken = "; ".join(f"{speaker} supports {', '.join(versions)}" for speaker, versions in speakers.items())
        return f"no CNI version fits network {self.network}: its configuration offers {self.version}; {spoken}"


class VerbUnsupported(CniError):
    """An operation that the list's version does not have; nothing has been executed.

    Attributes:
        verb: The operation.
        version: The list's version.
        since: The first version that has it.
    """

    code = ErrorCode.INCOMPATIBLE_VERSION

    def __init__(self, verb: str, version: str, since: str) -> None:
        # The words of libcni up to the semicolon.
        super().__init__(
            f'configuration version "{version}" does not support the {verb} command; versions from {since} on do'
        )
        self.verb = verb
        self.version = version
        self.since = since


class NetworkBusy(CniError):
    """Others worked on the network or the container for too long; nothing has been executed. Trying again may help.

    Attributes:
        network: Name of the network.
        waited_s: How long it was waited, in seconds.
    """

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, network: str, *, waited_s: float) -> None:
        super().__init__(
            f"network {network} or the container was still worked on by another operation after {waited_s:g} s"
        )
        self.network = network
        self.waited_s = waited_s


class PluginStillRuns(CniError):
    """A plugin that a killed process has left behind cannot be ended; nothing has been executed.

    Attributes:
        container_id: The container that it is at work for.
        processes: The processes, each as its ID and command line.
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
    """What went wrong in a garbage collection, which went on all the same.

    Attributes:
        network: Name of the network.
        errors: What went wrong, in order.
    """

    def __init__(self, network: str, errors: Sequence[CniError]) -> None:
        super().__init__(f"garbage collection of network {network}: {'; '.join(map(str, errors))}")
        self.network = network
        self.errors = tuple(errors)


class BadConfiguration(CniError):
    """A file or document that is no network configuration.

    Attributes:
        file: The file, None for a document from elsewhere.
        line: Line of the fault, counted from 1; None where it is not the syntax that is wrong.
        column: Column of the fault, counted from 1; None as `line`.
        reason: What is wrong.
    """

    code = ErrorCode.INVALID_CONFIGURATION

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

    code = ErrorCode.INVALID_CONFIGURATION

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
        if not self.known:
            text += "; put a .conflist file there"
        elif nearest:
            text += f"; did you mean {nearest[0]}?"
        if problems:
            text += f"; unusable: {'; '.join(map(str, problems))}"
        super().__init__(text)


class AttachmentExists(CniError):
    """An ADD of what has been added already, and not been deleted since; nothing has been executed.

    Attributes:
        network: Name of the network.
        container_id: The container's ID.
        ifname: Name of the interface.
    """

    def __init__(self, network: str, container_id: str, ifname: str) -> None:
        super().__init__(f"{ifname} of {container_id} is attached to {network} already, or owed a DEL; delete it first")
        self.network = network
        self.container_id = container_id
        self.ifname = ifname


class NotAttached(CniError):
    """A CHECK of what has not been added, or not to the end, or is being deleted; nothing has been executed.

    Attributes:
        network: Name of the network.
        container_id: The container's ID.
        ifname: Name of the interface.
        owed: Whether an ADD or a DEL was begun, so that a DEL is owed.
    """

    code = ErrorCode.UNKNOWN_CONTAINER

    def __init__(self, network: str, container_id: str, ifname: str, *, owed: bool) -> None:
        why = "its ADD or its DEL has not completed; delete it, and add it again" if owed else "add it first"
        super().__init__(f"{ifname} of {container_id} is not attached to {network}: {why}")
        self.network = network
        self.container_id = container_id
        self.ifname = ifname
        self.owed = owed


class CacheError(CniError):
    """The attachment cache cannot be read or written.

    Attributes:
        place: What is affected, e.g. the path of a file.
        reason: What is wrong with it.
    """

    code = ErrorCode.IO_FAILURE

    def __init__(self, place: Path | str, reason: str) -> None:
        super().__init__(f"attachment cache: {place}: {reason}")
        self.place = place
        self.reason = reason


class CacheDamaged(CacheError):
    """What was kept of an attachment cannot be understood any more."""

    code = ErrorCode.DECODING_FAILURE


class CacheUnknown(CacheError):
    """What was kept of an attachment is of a kind that this version does not know; it stays as it is."""

    code = ErrorCode.DECODING_FAILURE
