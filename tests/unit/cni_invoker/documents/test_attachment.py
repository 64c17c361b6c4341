# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An attachment that CNI does not allow cannot be constructed."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from cni_invoker import Attachment
from cni_invoker.documents.attachment import freeze_keys
from cni_invoker.errors import InvalidParameter

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
def test_an_invalid_attachment_cannot_be_made(make_bad: Callable[[], Attachment]) -> None:
    """Names, arguments and capability args are validated on construction, also of a copy."""
    with pytest.raises(InvalidParameter):
        make_bad()


def test_freeze_keys_removes_duplicates() -> None:
    """`freeze_keys` keeps the first of equal keys, in order, and iterates once, so a generator is allowed."""
    keys = [replace(GOOD, container_id=name).key for name in ("c2", "c1", "c2")]
    assert freeze_keys(key for key in keys) == (keys[0], keys[1])
