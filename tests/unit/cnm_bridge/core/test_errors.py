# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Errors whose kind is known end with the next command; those of the kernel say what was tried, and on what."""

from errno import EBUSY, EROFS
from pathlib import Path

import pytest

from cni_invoker.errors import ConfigurationNotFound, PluginNotFound
from cnm_bridge.core.errors import KernelError, LinkMissing, attempt, next_step


def without_lists(*known: str) -> ConfigurationNotFound:
    """Return the error about a list that is not there, beside lists of these names."""
    return ConfigurationNotFound("blue", known=known, directories=[Path("/etc/cni/net.d")], problems=[])


@pytest.mark.parametrize(
    ("error", "command"),
    [
        (PluginNotFound(plugin="bridge", directories=[Path("/opt/cni/bin")]), "`cni-bridge doctor`"),
        (without_lists(), "`cni-bridge network create NAME --subnet"),
        (without_lists("red"), ""),
        (ValueError("anything else"), ""),
    ],
)
def test_the_next_command(error: Exception, command: str) -> None:
    """It depends on words of the runtime and of plugins."""
    assert next_step(str(error)).startswith(command)
    assert bool(next_step(str(error))) is bool(command)


def test_an_os_error_becomes_a_kernel_error() -> None:
    """It has the system's message and number."""
    with pytest.raises(KernelError) as caught, attempt("move out", "link eth0"):
        raise OSError(EBUSY, "Device or resource busy")
    error = caught.value
    assert str(error) == "cannot move out link eth0: Device or resource busy"
    assert (error.operation, error.subject, error.reason, error.errno) == (
        "move out",
        "link eth0",
        "Device or resource busy",
        EBUSY,
    )


def test_the_file_of_an_os_error_is_named() -> None:
    """A sysctl that cannot be written is named beside the namespace; a file that is the subject is named once."""
    with (
        pytest.raises(KernelError, match=r"cannot make namespace /run/a: Read-only file system: /proc/sys/x$"),
        attempt("make namespace", "/run/a"),
    ):
        raise OSError(EROFS, "Read-only file system", "/proc/sys/x")
    with (
        pytest.raises(KernelError, match=r"cannot make namespace /run/a: Read-only file system$"),
        attempt("make namespace", "/run/a"),
    ):
        raise OSError(EROFS, "Read-only file system", "/run/a")


def test_a_kernel_error_is_not_wrapped_again() -> None:
    """The innermost operation and subject are the most precise."""
    with (
        pytest.raises(LinkMissing, match="cannot move out link eth0: no such link; existing links: lo, net1"),
        attempt("bring back", "link net0"),
    ):
        raise LinkMissing("move out", "link eth0", ("lo", "net1"))
