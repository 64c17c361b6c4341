# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Errors of the kernel say what was tried, on what, and why it failed."""

from errno import EBUSY, EROFS

import pytest

from cnm_bridge.core.errors import KernelError, LinkMissing, attempt


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
