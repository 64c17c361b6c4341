# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The limit of open descriptors is raised where the kernel allows it, and no garbage is looked for during the start."""

import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from cnm_bridge.process_limits import keep_memory_small, raise_descriptor_limit, settle_memory


@pytest.fixture(name="limits")
def lower_limit() -> Iterator[tuple[int, int]]:
    """Have a soft limit below the hard one; both are restored."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lower = min(soft, hard - 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lower, hard))
    yield lower, hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_limit_is_raised(limits: tuple[int, int]) -> None:
    """What it was is what plugins get."""
    soft, hard = limits
    assert raise_descriptor_limit() == soft
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_limit_that_cannot_be_raised(limits: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard limit above `fs.nr_open` can be had by lowering that; the daemon starts all the same."""
    too_high = int(Path("/proc/sys/fs/nr_open").read_text()) + 1
    with monkeypatch.context() as earlier:
        earlier.setattr(resource, "getrlimit", lambda _: (limits[0], too_high))
        assert raise_descriptor_limit() == limits[0]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == limits


def test_garbage_is_collected_once_the_records_are_read() -> None:
    """Not before; and what is there by then is never looked through again."""
    try:
        keep_memory_small()
        assert not gc.isenabled()
        record = {"endpoint": [1]}
        settle_memory()
        assert gc.isenabled()
        assert gc.get_freeze_count() > 0
        assert not any(found is record for found in gc.get_objects())
    finally:
        gc.unfreeze()
        gc.enable()
