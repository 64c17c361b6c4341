# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a link lacks of what its plugins made is named; what libnetwork changes is no difference."""

from dataclasses import replace

import pytest

from cnm_bridge.core.link.plan_sandbox import find_differences
from cnm_bridge.core.link_state import Snapshot
from tests.unit.cnm_bridge.core.snapshots import BRIDGE, LINK, address, route, snapshot

MADE = snapshot(*BRIDGE, route("192.0.2.0/24", "10.22.0.9"))


def differences(found: Snapshot, *, is_moved: bool = True) -> list[tuple[str, str]]:
    """Return what is found of a link that plugins left as `MADE`."""
    return list(find_differences(MADE, found, internal=False, is_moved=is_moved))


@pytest.mark.parametrize("is_moved", [True, False])
def test_an_untouched_link_has_no_difference(is_moved: bool) -> None:
    """Also without its default route, which Docker keeps on one network only, and with further addresses."""
    routes = tuple(one for one in MADE.routes if one.destination.prefixlen)
    assert differences(MADE, is_moved=is_moved) == []
    further = (*MADE.addresses, address("10.22.0.7/16"))
    assert differences(replace(MADE, routes=routes, addresses=further), is_moved=is_moved) == []


@pytest.mark.parametrize(
    ("found", "about", "what"),
    [
        (replace(MADE, link=replace(LINK, mtu=1400)), "link", "its MTU is 1400, not 1500"),
        (replace(MADE, link=replace(LINK, mac="02:00:00:00:00:09")), "link", "its MAC is 02:00:00:00:00:09"),
        (replace(MADE, addresses=()), "address", "10.22.0.2/16 is missing"),
        (replace(MADE, routes=MADE.routes[:3]), "route", "192.0.2.0/24"),
    ],
)
@pytest.mark.parametrize("is_moved", [True, False])
def test_a_difference_is_named(found: Snapshot, about: str, what: str, is_moved: bool) -> None:
    """With its kind, and with what it is."""
    assert [(one, what in text) for one, text in differences(found, is_moved=is_moved)] == [(about, True)]
