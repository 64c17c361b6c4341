# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Default routes that routers announce while plugins run in the sandbox."""

from typing import Final

import pytest

from cnm_bridge.core.link_state import Sysctl
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.kernel.pin import Finish
from tests.kernel.namespace import Namespace

ACCEPTS: Final = "net/ipv6/conf/eth0/accept_ra_defrtr"
BOTH: Final = frozenset({4, 6})
OF_LIST: Final = "-6 route add default via fd80:1::1 dev eth0"


@pytest.fixture(name="pinned")
def make_pinned(sandbox: Namespace) -> Namespace:
    """A sandbox with a link that has an IPv6 address and a default route of a router, and a pin of it."""
    sandbox.ip(
        "link add eth0 type veth peer name peer",
        "link set peer up",
        "link set eth0 up",
        "-6 address add fd80:1::2/64 dev eth0 nodad",
        "-6 route add default via fe80::1 dev eth0 proto ra metric 1025",  # `ip` would merge two with the same metric
    )
    return sandbox


def defaults(sandbox: Namespace) -> list[str]:
    """Return the next hops of the IPv6 default routes."""
    lines = sandbox.run("ip -6 route show default").decode().splitlines()
    return [line.split()[2] for line in lines]


async def finish(kernel: Kernel, sandbox: Namespace, wanted: Finish) -> tuple[Sysctl, ...]:
    """Finish the link as Join does; return the settings that it must have afterwards."""
    snapshot = await kernel.pin(sandbox.path, "eth0", "cni-test").finish(wanted)
    return snapshot.sysctls


async def test_a_list_with_a_gateway(kernel: Kernel, pinned: Namespace) -> None:
    """Docker can add its default route: there is none, and none is accepted until later."""
    pinned.ip(OF_LIST)
    later = await finish(kernel, pinned, Finish(families=BOTH))
    assert defaults(pinned) == []
    assert pinned.setting(ACCEPTS) == "0"
    assert later == (Sysctl(name=ACCEPTS, value="1"),)


async def test_a_list_without_a_gateway(kernel: Kernel, pinned: Namespace) -> None:
    """Docker adds none, so the router's stays: the next announcement may come minutes later."""
    assert await finish(kernel, pinned, Finish(families=BOTH)) == ()
    assert defaults(pinned) == ["fe80::1"]
    assert pinned.setting(ACCEPTS) == "1"


async def test_an_internal_network(kernel: Kernel, pinned: Namespace) -> None:
    """Docker adds none, whatever the list has."""
    pinned.ip(OF_LIST)
    assert await finish(kernel, pinned, Finish(families=BOTH, without_defaults=True)) == ()
    assert pinned.setting(ACCEPTS) == "1"


@pytest.mark.parametrize("value", ["1", "0"])
async def test_a_setting_of_the_user(kernel: Kernel, pinned: Namespace, value: str) -> None:
    """It counts once Docker has added its default route, which needs its place until then."""
    pinned.ip(OF_LIST)
    chosen = Sysctl(name=ACCEPTS, value=value)
    assert await finish(kernel, pinned, Finish(families=BOTH, sysctls=(chosen,))) == (chosen,)
    assert defaults(pinned) == []
    assert pinned.setting(ACCEPTS) == "0"


async def test_no_announced_default_is_wanted(kernel: Kernel, pinned: Namespace) -> None:
    """One that came before the setting is removed: it would be in the way of another network's gateway."""
    await finish(kernel, pinned, Finish(sysctls=(Sysctl(name=ACCEPTS, value="0"),)))
    assert defaults(pinned) == []
    assert pinned.setting(ACCEPTS) == "0"
