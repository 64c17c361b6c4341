# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A GC knows every attachment that is being added while it runs."""

import pytest

from cni_invoker import AttachmentKey
from cni_invoker.caching.locks import AddsInProgress
from cni_invoker.errors import AttachmentExists

KEY = AttachmentKey(container_id="c1", ifname="eth0")


def test_an_attachment_is_added_once_at_a_time() -> None:
    """A second ADD is refused while the first runs, and allowed afterwards."""
    adds = AddsInProgress()
    with adds.adding("blue", KEY), pytest.raises(AttachmentExists), adds.adding("blue", KEY):
        pass
    with adds.adding("blue", KEY):
        pass


def test_adds_before_and_during_an_observation_are_seen() -> None:
    """Those that have ended meanwhile are still known, those that ended before are not."""
    adds = AddsInProgress()
    with adds.adding("green", KEY):
        pass
    with adds.adding("blue", KEY):
        observation = adds.observed()
        observed = observation.__enter__()
    with adds.adding("red", KEY):
        pass
    assert set(observed) == {("blue", KEY), ("red", KEY)}
    observation.__exit__(None, None, None)


def test_the_end_of_one_observation_does_not_end_another() -> None:
    """The GCs of two networks may observe the same attachments; the later one may end first."""
    adds = AddsInProgress()
    with adds.observed() as first:
        with adds.observed() as second:
            assert first == second == set()
        with adds.adding("blue", KEY):
            pass
        assert set(first) == {("blue", KEY)}
