# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Ending duplicate address detection of the gateways that plugins have made on the host."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.system.kernel import Kernel
from tests.kernel.real_plugins import HOST

LINK = "detect0"


@pytest.fixture(autouse=True)
def link() -> Iterator[None]:
    """A link of the host that is up, and detects duplicates."""
    HOST.ip(f"link add {LINK} type veth peer name {LINK}p")
    Path("/proc/sys/net/ipv6/conf", LINK, "accept_dad").write_text("1", encoding="ascii")
    HOST.ip(f"link set {LINK} up", f"link set {LINK}p up")
    yield
    HOST.ip(f"link del {LINK}")


def shown(address: str) -> JsonObject:
    """Return what the kernel says about an address of the link."""
    (link,) = json.loads(HOST.run(f"ip -6 -json address show dev {LINK}"))
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
