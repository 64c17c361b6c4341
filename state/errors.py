# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The errors of this package."""

from pathlib import Path


class StateError(Exception):
    """Base class of the errors of this package."""


class StateLocked(StateError):
    """Another process has the state directory open; its ID is in the lock file, unless it has not written it yet."""

    def __init__(self, path: Path, pid: int | None) -> None:
        holder = "another process" if pid is None else f"process {pid}"
        super().__init__(
            f"state directory {path} is in use by {holder}; "
            "stop that cni-bridge first, or give this one another --state-dir"
        )


class UnknownSchema(StateError):
    """The state was written by a cni-bridge with another schema."""

    def __init__(self, path: Path, stored: int, known: int) -> None:
        super().__init__(
            f"state directory {path} has schema version {stored}, this cni-bridge knows {known}: "
            "install the version that wrote it, or put back what this one has exported (cni-bridge state import "
            "--replace FILE); nothing has been changed"
        )


class StateUnusable(StateError):
    """LevelDB cannot open, read or write its files."""

    def __init__(self, path: Path, doing: str, reason: object) -> None:
        super().__init__(f"cannot {doing} the state in {path}: {reason}")


class RecordDamaged(StateError):
    """A stored record does not fit its schema."""

    def __init__(self, key: str, reason: object) -> None:
        super().__init__(
            f"stored record {key} is damaged: {reason}; nothing has been changed. Without its state directory "
            "cni-bridge starts anew, and knows none of the networks and containers that exist"
        )
        self.key = key
        self.reason = str(reason)


class ImportRefused(StateError):
    """A document cannot be imported; nothing has been changed."""


class RecordNotFound(StateError):
    """No record with that identifier."""

    def __init__(self, kind: str, identifier: str) -> None:
        super().__init__(f"cni-bridge knows no {kind} {identifier}")


class WrongPhase(StateError):
    """The phase of an endpoint or an address does not allow the step; None stands for no record."""

    def __init__(self, identifier: str, phase: str | None, requested: str | None, kind: str = "endpoint") -> None:
        super().__init__(f"{kind} {identifier} is {phase or 'not stored'} and cannot become {requested or 'gone'}")


class NotJoined(StateError):
    """An endpoint has no sandbox."""

    def __init__(self, identifier: str) -> None:
        super().__init__(f"endpoint {identifier} has no sandbox: it has not been joined, or that is not known")
