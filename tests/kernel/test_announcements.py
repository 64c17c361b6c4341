# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Announcements of a container's addresses: a neighbour that knows another MAC takes the link's at once."""

from functools import partial

import pytest

from cni_bridge_spec import get_str
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace
from tests.kernel.pair import ALTNAME, place_link, prepare
from tests.lab import wait_until

pytestmark = pytest.mark.usefixtures("nothing_left_of_the_pair")

STALE = "02:00:00:00:00:99"
ADDRESSES = ("10.1.0.2", "fd00::2")


def knows(host: Namespace, mac: str, address: str) -> bool:
    """Return whether the host knows an address behind `outside` with a MAC."""
    return f"lladdr {mac} " in host.run(f"ip neighbour show {address} dev outside").decode()


def learn_stale(host: Namespace) -> None:
    """Let the host have used both addresses with another MAC just now."""
    host.ip("address add 10.1.0.1/24 dev outside", "address add fd00::1/64 dev outside nodad")
    for address in ADDRESSES:
        host.ip(f"neighbour replace {address} lladdr {STALE} dev outside nud reachable")


async def test_a_neighbour_learns_the_mac_at_once(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Of an IPv4 and an IPv6 address, although its entries are fresh; no packet was exchanged before."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    learn_stale(host)
    announced = await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce()
    assert tuple(map(str, announced or ())) == ADDRESSES
    mac = get_str(sandbox.link("eth7"), "address")
    for address in ADDRESSES:
        wait_until(partial(knows, host, mac, address), f"{mac} of {address}", 1.0)


async def test_a_link_that_is_not_in_the_sandbox_yet(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """Nothing is announced, and the caller learns it: libnetwork may still place the link."""
    await prepare(kernel, host, staging)
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce() is None
    host.ip("link delete outside")


async def test_links_that_announce_nothing(
    kernel: Kernel, host: Namespace, staging: Namespace, sandbox: Namespace
) -> None:
    """One without ARP announces no address; one that is down is an error."""
    await prepare(kernel, host, staging)
    place_link(host, sandbox)
    sandbox.ip("link set eth7 arp off")
    assert await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce() == ()
    sandbox.ip("link set eth7 arp on down")
    with pytest.raises(KernelError, match="announce the addresses"):
        await kernel.link_in_sandbox(sandbox.path, ALTNAME).announce()
