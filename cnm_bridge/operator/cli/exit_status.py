# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The exit status of the operator's commands."""

import os
import sys
from collections.abc import Callable
from enum import IntEnum
from functools import wraps

from cni_invoker.cli.echo import echo
from cnm_bridge.core.errors import BadOption, BridgeError


class ExitStatus(IntEnum):
    """What a command's exit status means."""

    FINE = 0
    FINDINGS = 1
    """Something needs the operator's attention, or could not be done; the output says what."""
    USAGE = 2
    """An option or a name is wrong (click uses it as well)."""
    NO_DAEMON = 3
    """No daemon answers, or not one that understands this command."""


def exits(command: Callable[..., ExitStatus]) -> Callable[..., None]:
    """Return a command's function that ends the process with the exit status that `command` returns.

    A `BridgeError` ends it with its text, and with the exit status that it has, else 2 for an option, else 1.
    """

    @wraps(command)
    def run(*args: object, **own: object) -> None:
        try:
            sys.exit(command(*args, **own))
        except PermissionError as exc:
            echo(f"cni-bridge: {describe_failure(exc)}", err=True)
            sys.exit(ExitStatus.FINDINGS)
        except BridgeError as exc:
            echo(f"cni-bridge: {exc}", err=True)
            default = ExitStatus.USAGE if isinstance(exc, BadOption) else ExitStatus.FINDINGS
            sys.exit(getattr(exc, "exit_status", default))

    return run


def describe_failure(error: Exception) -> str:
    """Return an error's text; if the user may not do something, what to do."""
    if os.geteuid() == 0 or not isinstance(error, PermissionError):
        return str(error)
    return f"run as root (sudo): {error.strerror}: {error.filename}"
