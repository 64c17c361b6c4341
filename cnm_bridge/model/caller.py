# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Who makes the call that is being answered: known where it comes in, needed where its endpoint is recorded."""

from contextvars import ContextVar
from typing import Final

__all__ = ["ENGINE_PID"]

ENGINE_PID: Final[ContextVar[int]] = ContextVar("caller_pid", default=0)
"""The process that makes the call, an engine; 0 where there is no call, or the process is not to be seen."""
