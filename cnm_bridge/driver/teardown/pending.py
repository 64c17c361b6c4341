# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is known of a teardown that has not completed."""

from dataclasses import dataclass

__all__ = ["Failure", "PendingTeardown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a teardown has not completed.

    Attributes:
        error: The error of the last attempt.
        since: When the first attempt in this run of the daemon failed, by `time.monotonic`.
    """

    error: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingTeardown:
    """A teardown that has not completed.

    Attributes:
        attempts: Number of attempts in the background.
        failure: Its failure, None before an attempt has failed.
    """

    attempts: int
    failure: Failure | None

    @property
    def error(self) -> str | None:
        """The error of the last attempt, None before one has failed."""
        return None if self.failure is None else self.failure.error
