# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Errors of the kernel: what was tried, on what, and why it failed."""

from errno import EBUSY, EEXIST, ENODEV, EROFS

import pytest

from cnm_bridge.kernel import KernelError, LinkMissing, NameTaken
from cnm_bridge.kernel.records.errors import attempt


def test_an_error_of_the_system_becomes_one_of_the_kernel() -> None:
    """With the system's words and number."""
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


def test_a_file_is_named_unless_it_is_the_subject() -> None:
    """A setting that cannot be written is told apart from the namespace that was to have it."""
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


def test_an_error_without_a_number() -> None:
    """A reply that did not come has words only."""
    with (
        pytest.raises(KernelError, match="cannot move out link eth0: timed out") as caught,
        attempt("move out", "link eth0"),
    ):
        raise TimeoutError("timed out")
    assert caught.value.errno is None


def test_an_error_of_the_kernel_stays_what_it_is() -> None:
    """The nearest words are the best."""
    with (
        pytest.raises(LinkMissing, match="cannot move out link eth0: no such link; there are lo, net1"),
        attempt("bring back", "link net0"),
    ):
        raise LinkMissing("move out", "link eth0", ("lo", "net1"))


def test_each_error_has_its_number() -> None:
    """A caller may go by the number alone."""
    assert LinkMissing("move out", "link eth0", ()).errno == ENODEV
    assert NameTaken("move out", "link eth0", ("a", "b")).errno == EEXIST
