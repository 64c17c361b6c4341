# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finding running containers whose endpoint has no record."""

import asyncio
from collections.abc import Iterable
from secrets import token_hex
from typing import Final

import pytest

from cni_bridge_state import AttachmentId
from cni_bridge_state.store import Store
from cnm_bridge.core.naming import alternative_name
from cnm_bridge.driver.teardown.address_owners import AddressInUse, UnrecordedLinks
from cnm_bridge.system.kernel import Kernel, MarkedLink, Sandboxes
from cnm_bridge.system.kernel.netns import NamespaceId

ATTACHMENT: Final = AttachmentId(token_hex(32))
ADDRESS, OTHER = "10.201.7.9", "10.201.7.10"
SANDBOX: Final = NamespaceId(device=1, inode=1)


def seen(*, unread: bool = False) -> Sandboxes:
    """Return a look that has found the link, or has not been able to read its sandbox."""
    altname = alternative_name(ATTACHMENT)
    link = MarkedLink(altname=altname, addresses=frozenset({ADDRESS}), sandbox=SANDBOX)
    return Sandboxes(
        links={} if unread else {altname: [link]},
        addresses=link.addresses,
        ids={"sandbox": SANDBOX},
        unread={SANDBOX: "it changes"} if unread else {},
        lost=frozenset(),
        inhabited=frozenset({SANDBOX}),
    )


class Scripted(Kernel):
    """A host whose sandboxes are seen as a test wants; a further look does not end."""

    def __init__(self, *looks: Sandboxes) -> None:
        super().__init__(reply_limit_s=5.0)
        self.looks = list(looks)

    async def look_into_sandboxes(self, _known: Iterable[str] = ()) -> Sandboxes:
        """Return the next look."""
        if not self.looks:
            await asyncio.Event().wait()
        return self.looks.pop(0)


async def test_a_sandbox_that_cannot_be_read_again(store: Store) -> None:
    """What was found there before is still in the way, until it can be read and the link is gone."""
    gone = Sandboxes(links={}, addresses=frozenset(), ids={}, unread={}, lost=frozenset(), inhabited=frozenset())
    unrecorded = UnrecordedLinks(store, Scripted(seen(), seen(unread=True), gone))
    for _ in range(2):
        await unrecorded.look([ADDRESS])
        with pytest.raises(AddressInUse, match=f"endpoint {ATTACHMENT} has no record and has the same address"):
            await unrecorded.refuse_if_used("firewall", [ADDRESS])
        await unrecorded.refuse_if_used("firewall", [OTHER])
    await unrecorded.look([ADDRESS])
    await unrecorded.refuse_if_used("firewall", [ADDRESS])


async def test_a_sandbox_that_cannot_be_read_at_all(store: Store) -> None:
    """It does not keep the DEL of others from running."""
    unrecorded = UnrecordedLinks(store, Scripted(seen(unread=True)))
    await unrecorded.refuse_if_used("firewall", [ADDRESS])


async def test_a_del_beside_another_look(store: Store) -> None:
    """It does not wait: it holds a plugin slot, which others need."""
    unrecorded = UnrecordedLinks(store, Scripted(seen()))
    await unrecorded.look([ADDRESS])
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        again = tasks.create_task(unrecorded.look([ADDRESS]))
        await asyncio.sleep(0)
        await unrecorded.refuse_if_used("firewall", [OTHER])
        with pytest.raises(AddressInUse):
            await unrecorded.refuse_if_used("firewall", [ADDRESS])
        again.cancel()
