# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An attachment that CNI does not allow cannot exist."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cni_invoker import Attachment, InvalidParameter
from cni_invoker.attachment import freeze_keys

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


def test_keys_are_frozen_once_each() -> None:
    """A generator is gone through once; the order stays."""
    keys = [replace(GOOD, container_id=name).key for name in ("c2", "c1", "c2")]
    assert freeze_keys(key for key in keys) == (keys[0], keys[1])


@pytest.mark.parametrize("wrong", [GOOD, ("c1", "eth0"), "c1/eth0", None, ["c1"]])
def test_what_is_no_key_is_refused(wrong: object) -> None:
    """It would equal no key, so that whatever it stands for would count as stale."""
    with pytest.raises(TypeError, match="each valid attachment must be given as its AttachmentKey"):
        freeze_keys([GOOD.key, wrong])
