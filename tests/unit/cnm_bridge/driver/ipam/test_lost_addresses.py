# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which addresses an earlier run of the engine has left."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Interface
from typing import Final, cast

import pytest

from cni_bridge_state import AddressId, AddressPhase, AddressRecord, AddressUse, PoolId, ProcessRecord
from cnm_bridge.core.link_state import KernelError
from cnm_bridge.driver.ipam.lost_addresses import LostAddresses
from cnm_bridge.system.kernel import Kernel, Sandboxes
from cnm_bridge.system.kernel.netns import NamespaceId

ENGINE_AGE_S: Final = 100
BOOT_S: Final = time.clock_gettime(time.CLOCK_BOOTTIME)
ENGINE: Final = ProcessRecord(pid=7, started=int((BOOT_S - ENGINE_AGE_S) * os.sysconf("SC_CLK_TCK")))
EARLIER: Final = AddressRecord(
    id=AddressId("0" * 64),
    pool=PoolId("lan,10.1.2.0/24,,5f0c81aa"),
    section="lan",
    phase=AddressPhase.RESERVED,
    use=AddressUse.ANY,
    address=IPv4Interface("10.1.2.5/24"),
    name=None,
    reservation=None,
    created_at=int(time.time()) - ENGINE_AGE_S - 5,
)


@dataclass
class Namespaces:
    """Stands in for the sandboxes of the host."""

    used: frozenset[str] = frozenset()
    are_visible: bool = True
    unread: Mapping[NamespaceId, str] = field(default_factory=dict)
    looks: int = 0

    async def look_into_sandboxes(self) -> Sandboxes:
        """Return the addresses in all of them."""
        self.looks += 1
        if not self.are_visible:
            raise KernelError("look at", "processes", "not visible")
        return Sandboxes(
            links={}, addresses=self.used, ids={}, unread=self.unread, lost=frozenset(), inhabited=frozenset()
        )


async def is_lost(record: AddressRecord, caller: ProcessRecord | None, namespaces: Namespaces) -> bool:
    """Return whether a record is given back."""
    return bool(await LostAddresses(cast("Kernel", namespaces)).find([record], caller))


async def test_an_address_of_an_earlier_run_that_no_container_has() -> None:
    """The engine that calls is younger than the record, so it cannot have the address."""
    assert await is_lost(EARLIER, ENGINE, Namespaces(frozenset({"10.1.2.6"})))


@pytest.mark.parametrize(
    "record",
    [
        replace(EARLIER, created_at=int(time.time()) - ENGINE_AGE_S + 5),
        replace(EARLIER, phase=AddressPhase.PENDING, address=None),
        replace(EARLIER, use=AddressUse.GATEWAY),
    ],
)
async def test_other_records(record: AddressRecord) -> None:
    """One of this run, one that has no address yet, and a gateway."""
    assert not await is_lost(record, ENGINE, Namespaces())


async def test_the_second_in_which_the_engine_started() -> None:
    """A record has whole seconds, so one of this run may seem to be from before the engine started."""
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    for created_at in range(EARLIER.created_at, int(time.time())):
        next_second = replace(ENGINE, started=round((created_at + 0.99 - booted) * os.sysconf("SC_CLK_TCK")))
        assert not await is_lost(replace(EARLIER, created_at=created_at), next_second, Namespaces())


async def test_an_address_in_use() -> None:
    """With live-restore, containers keep theirs while the engine is restarted."""
    assert not await is_lost(EARLIER, ENGINE, Namespaces(frozenset({"10.1.2.5"})))


async def test_what_is_not_known() -> None:
    """Neither without the caller nor without the sandboxes is anything given back."""
    assert not await is_lost(EARLIER, None, Namespaces())
    assert not await is_lost(EARLIER, ENGINE, Namespaces(are_visible=False))
    assert not await is_lost(
        EARLIER, ENGINE, Namespaces(unread={NamespaceId(device=1, inode=2): "it has too many links"})
    )


async def test_one_look_for_each_engine() -> None:
    """A booting engine asks for hundreds of addresses; what a container had before it, it has at the first request."""
    namespaces = Namespaces(frozenset({"10.1.2.5"}))
    lost = LostAddresses(cast("Kernel", namespaces))
    free = replace(EARLIER, id=AddressId("1" * 64), address=IPv4Interface("10.1.2.6/24"))
    assert await lost.find([EARLIER, free], ENGINE) == [free]
    assert await lost.find([EARLIER], ENGINE) == []
    assert namespaces.looks == 1
    namespaces.used = frozenset()
    assert await lost.find([EARLIER], replace(ENGINE, pid=8)) == [EARLIER]
    assert namespaces.looks == 2
