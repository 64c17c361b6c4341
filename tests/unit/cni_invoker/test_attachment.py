# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An attachment that CNI does not allow cannot exist."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cni_invoker import Attachment, InvalidParameter

GOOD = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1", args=(("IP", "10.1.0.9"),))


@pytest.mark.parametrize(
    "make_bad",
    [
        lambda: replace(GOOD, container_id="some-%%"),
        lambda: replace(GOOD, container_id=""),
        lambda: replace(GOOD, ifname="a" * 16),
        lambda: replace(GOOD, netns="\0"),
        lambda: replace(GOOD, args=(("IP", "a;b"),)),
        lambda: replace(GOOD, capability_args={"bandwidth": {"ingressRate": float("nan")}}),
        lambda: replace(GOOD, capability_args={"bandwidth": {"ingressRate": float("inf")}}),
    ],
)
def test_it_is_checked_when_it_is_made(make_bad: Callable[[], Attachment]) -> None:
    """Its names are checked, and that plugins can be told its capabilities; also when a copy is made."""
    with pytest.raises(InvalidParameter):
        make_bad()


def test_it_is_a_value() -> None:
    """Equal attachments are equal, and can be members of a set."""
    assert {GOOD, replace(GOOD, capability_args={})} == {GOOD}
