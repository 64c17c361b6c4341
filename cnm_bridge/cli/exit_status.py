# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The exit status of the operator's commands."""

from enum import IntEnum

__all__ = ["ExitStatus"]


class ExitStatus(IntEnum):
    """What a command's exit status means."""

    FINE = 0
    FINDINGS = 1
    """Something needs the operator's attention, or could not be done; the output says what."""
    USAGE = 2
    """An option or a name is wrong (click uses it as well)."""
    NO_DAEMON = 3
    """No daemon answers, or not one that understands this command."""
