# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What two containers must not share; `tests/soak/test_keeping.py` has all that one may lose."""

from tests.soak.holdings import Holdings, Link
from tests.soak.losses import find_shared


def holdings(address: str, mac: str) -> Holdings:
    """Return what a container with one link has."""
    link = Link(addresses=frozenset({address}), general=frozenset())
    line = f"link eth0: UP mtu 1500 mac {mac}"
    return Holdings(lines=frozenset({line}), links={"eth0": link}, silent=frozenset())


def test_what_two_containers_share() -> None:
    """A MAC or an address of two containers is reported; what each of them has alone is not."""
    own = holdings("10.82.1.2", "02:00:00:00:00:07")
    for other, expected in (
        (holdings("10.82.1.3", "02:00:00:00:00:08"), ()),
        (holdings("10.82.1.2", "02:00:00:00:00:08"), ("10.82.1.2 is that of containers c1, c2",)),
        (holdings("10.82.1.3", "02:00:00:00:00:07"), ("02:00:00:00:00:07 is that of containers c1, c2",)),
    ):
        assert find_shared({"c1": own, "c2": other}) == expected
