# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Waiting for a condition, with a limit."""

import time
from collections.abc import Callable
from typing import Final

from tests.lab.errors import LabError

_POLL_S: Final = 0.005


def wait_until(is_true: Callable[[], bool], what: str, timeout_s: float = 30.0, *, poll_s: float = _POLL_S) -> None:
    """Wait until `is_true()`, called every `poll_s`; the limit leaves time to a busy machine.

    Raises:
        LabError: `timeout_s` passed; `what` says in the message what has not come.
    """
    deadline = time.monotonic() + timeout_s
    while not is_true():
        if time.monotonic() > deadline:
            raise LabError(f"{what}: not within {timeout_s:g} s")
        time.sleep(poll_s)
