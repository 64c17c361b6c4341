# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's own errors (`BridgeError`), and those of operations on namespaces and links (`KernelError`).

A function called `refuse_…` raises `Refused` unless its docstring names another error. `AddressClaimed` is an error of
a plugin's DEL, so it is a `CniError`.

The errors of lower layers (`CniError`, `StateError`) are not wrapped, so that an operator reads the plugin's own
message. Only `cnm_bridge.server.rpc` turns errors into replies to Docker.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from errno import ENODEV, ENOENT, EOPNOTSUPP
from typing import Final

from cni_invoker import CniError, ErrorCode


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, cutoff: float = 0.5) -> str:
    """Return `did you mean X?` with the known name that is most like a wrong one, or `otherwise` if none is."""
    from difflib import get_close_matches  # noqa: PLC0415 - only an error needs it

    near = get_close_matches(name, [*known], n=1, cutoff=cutoff)
    return f"did you mean {near[0]}?" if near else otherwise


class BridgeError(Exception):
    """Base of the daemon's own errors; the text is for the user of `docker`."""


class BadRequest(BridgeError):
    """A request is malformed; nothing has been done."""


class BadOption(BridgeError):
    """An option is unknown or malformed; nothing has been done."""

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option

    @classmethod
    def unknown(cls, option: str, known: Iterable[str]) -> "BadOption":
        """Return the error for an unknown option, with the most similar known one."""
        names = sorted(known)
        known_ones = f"known options: {', '.join(names) or 'none'}"
        return cls(option, f"unknown to cni-bridge; {did_you_mean(option, names, known_ones)}")


class Refused(BridgeError):
    """A request is valid, but not possible; nothing has been changed."""


class UnknownName(Refused):
    """Nothing has the name that an operator gave."""


class CannotPublish(Refused):
    """A network cannot publish ports; another network of the container may be able to."""


class Interrupted(BridgeError):
    """A later call has interrupted this one; its effects are undone by a later call or by the teardown."""


class EngineUnavailable(BridgeError):
    """The Docker Engine API did not answer."""


class EngineSilent(EngineUnavailable):
    """It accepted the connection and did not answer in time, as while it boots."""


class EngineRefused(EngineUnavailable):
    """It answered that it does not do what was asked: nothing has changed."""


class FileKept(Exception):
    """A file that Docker mounts in a container has to stay as it is; reads as the reason."""


class NotDockersFile(FileKept):
    """The user has mounted another one at its place."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the container's /etc/{name} is not the file that Docker mounts there")


class AddressClaimed(CniError):
    """A plugin's DEL has to wait: an attachment that is being added may receive one of the addresses.

    It is not known yet whether the new attachment will need the rules for the address. If its ADD fails, only this DEL
    removes them.
    """

    code = ErrorCode.TRY_AGAIN_LATER

    def __init__(self, plugin: str, claimant: str) -> None:
        super().__init__(
            f"the DEL of plugin {plugin} waits for container {claimant}, which is being added with the same address"
        )
        self.plugin = plugin
        self.claimant = claimant


def network_option(option: str, value: str) -> str:
    """Return how a network is given an option, on the command line and in a compose file."""
    return f"-o {option}={value} (compose: driver_opts: {{ {option}: {value} }})"


def endpoint_option(option: str, value: str) -> str:
    """Return how a container is given an option on one of its networks."""
    return f"--network name=NETWORK,driver-opt={option}={value} (compose: driver_opts: {{ {option}: {value} }})"


NULL_IPAM: Final = '--ipam-driver null (compose: ipam: { driver: "null" })'
"""How a network is made whose addresses Docker does not choose."""

_PLUGINS: Final = "`cni-bridge doctor` says what to install"

_NEXT_STEPS: Final[Mapping[str, str]] = {
    # bridge
    "already has an IP address different from": "if another network uses the bridge, give this list one of its own; "
    "otherwise `cni-bridge doctor` shows the address and the command that removes it",
    # of the runtime
    "put a .conflist file there": "`cni-bridge network create NAME --subnet 10.22.0.0/16` makes one, and its network",
    "failed to find plugin": _PLUGINS,
    ": not found in /": _PLUGINS,
    # host-local, and plugins like it
    "no IP addresses available": "`cni-bridge ls` and `GET /v1/addresses` at the admin socket show who has "
    "addresses; `cni-bridge doctor` finds those that no container has",
}
"""Words of plugins and of the CNI runtime, and the next step. An error in other words only lacks that step."""


def next_step(error: str) -> str:
    """Return the next command after an error whose kind is known, "" for any other."""
    return next((step for words, step in _NEXT_STEPS.items() if words in error), "")


class KernelError(Exception):
    """The kernel refused a step; reads as `cannot move out link eth0 of /run/cni-bridge/netns/4f2a: <reason>`."""

    def __init__(self, operation: str, subject: str, reason: str, errno: int | None = None) -> None:
        super().__init__(f"cannot {operation} {subject}: {reason}")
        self.operation = operation
        self.subject = subject
        self.reason = reason
        self.errno = errno


class NamespaceMissing(KernelError):
    """The path is not a live network namespace."""

    def __init__(self, operation: str, subject: str) -> None:
        super().__init__(operation, subject, "no network namespace is mounted there", ENOENT)


class LinkMissing(KernelError):
    """The namespace has no link of that name."""

    def __init__(self, operation: str, subject: str, existing: tuple[str, ...]) -> None:
        super().__init__(operation, subject, f"no such link; existing links: {', '.join(existing) or 'none'}", ENODEV)
        self.existing = existing


class NotCarriable(KernelError):
    """The namespace has something that cannot be created again in another one."""

    def __init__(self, what: str) -> None:
        super().__init__("carry", what, "it cannot be made again in another namespace", EOPNOTSUPP)
        self.what = what


@contextmanager
def attempt(operation: str, subject: str) -> Iterator[None]:
    """Turn an `OSError` of the block into a `KernelError` with the operation and its subject."""
    try:
        yield
    except OSError as exc:
        reason = exc.strerror or str(exc)
        if exc.filename is not None and str(exc.filename) != subject:
            reason += f": {exc.filename}"
        raise KernelError(operation, subject, reason, exc.errno) from exc
