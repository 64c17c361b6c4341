# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ending duplicate address detection of the gateways that plugins have made on the host."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import Result
from cnm_bridge.driver.attach.move_attacher import run_add
from cnm_bridge.system.kernel import Kernel
from tests.kernel.real_plugins import HOST
from tests.records import list_of

LINK = "detect0"


@pytest.fixture(autouse=True)
def link() -> Iterator[None]:
    """A link of the host that is up, and detects duplicates."""
    HOST.ip(f"link add {LINK} type veth peer name {LINK}p")
    bring_up(LINK)
    HOST.ip(f"link set {LINK}p up")
    yield
    HOST.ip(f"link del {LINK}")


def bring_up(name: str) -> None:
    """Let a link look for duplicates of its addresses."""
    Path("/proc/sys/net/ipv6/conf", name, "accept_dad").write_text("1", encoding="ascii")
    HOST.ip(f"link set {name} up")


def shown(address: str, name: str = LINK) -> JsonObject:
    """Return what the kernel says about an address of a link."""
    (link,) = json.loads(HOST.run(f"ip -6 -json address show dev {name}"))
    return next(dict(info) for info in link["addr_info"] if info["local"] == address)


async def test_a_gateway_is_answered_for(kernel: Kernel) -> None:
    """The address is no longer tentative, and has what it had; a link that does not exist is ignored."""
    HOST.ip(f"-6 address add fd99::1/64 dev {LINK} metric 77")
    assert shown("fd99::1")["tentative"]
    await kernel.end_detection([LINK, "missing0"])
    after = shown("fd99::1")
    assert after["nodad"]
    assert "tentative" not in after
    assert (after["prefixlen"], after["metric"]) == (64, 77)


async def test_other_addresses_stay(kernel: Kernel) -> None:
    """The kernel ends the detection of its own address, and of one with a lifetime, which no plugin made."""
    HOST.ip(f"-6 address add fd99::2/64 dev {LINK} valid_lft 600 preferred_lft 600")
    await kernel.end_detection([LINK])
    assert shown("fd99::2")["tentative"]


@pytest.mark.parametrize(("bridge", "ends"), [("new0", True), (LINK, False)])
async def test_the_vlan_of_a_bridge(kernel: Kernel, bridge: str, ends: bool) -> None:
    """It is as new as its bridge: in a VLAN of the operator's bridge, others may have the address."""
    network = list_of({"type": "bridge", "bridge": bridge, "vlan": 7}, name="lan")

    async def add() -> Result:
        HOST.ip(f"link add link {LINK} name {LINK}.7 type macvlan")
        bring_up(f"{LINK}.7")
        HOST.ip(f"-6 address add fd99::7/64 dev {LINK}.7")
        interfaces: list[JsonObject] = [{"name": bridge}, {"name": f"{LINK}.7"}, {"name": "eth0", "sandbox": "/run/x"}]
        return Result.from_document(
            {"cniVersion": "1.0.0", "interfaces": interfaces, "ips": [{"address": "fd99::8/64"}]}
        )

    await run_add(kernel, network, add())
    assert shown("fd99::7", f"{LINK}.7").get("tentative", False) is not ends
