# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a sandbox that cannot be read says about the endpoints in use."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import cast

from structlog.testing import capture_logs

from cni_bridge_state import Phase
from cni_bridge_state.store import Store
from cnm_bridge.driver.teardown.liveness import Liveness
from cnm_bridge.system.kernel import Kernel, Sandboxes
from cnm_bridge.system.kernel.netns import NamespaceId
from tests.records import endpoint, put

OTHER = NamespaceId(device=1, inode=1)
RECORD = replace(endpoint("e" * 64), sandbox_key="/run/docker/netns/1")


@dataclass(frozen=True, slots=True)
class OneUnread:
    """Stands in for a host with one sandbox, which is at some paths and cannot be read."""

    paths: tuple[str, ...] = ()

    async def look_into_sandboxes(self, _: Iterable[str] = ()) -> Sandboxes:
        """Return nothing but that."""
        return Sandboxes(
            links={},
            addresses=frozenset(),
            ids=dict.fromkeys(self.paths, OTHER),
            unread={OTHER: "it changes"},
            lost=frozenset(),
            inhabited=None,
        )


async def test_a_sandbox_that_cannot_be_read(store: Store) -> None:
    """It says nothing about an endpoint that has another one."""
    assert await Liveness(store, cast("Kernel", OneUnread())).find_in_use([RECORD]) == frozenset()


async def test_an_endpoint_in_use_is_logged_once(store: Store) -> None:
    """And again after its record has been removed."""
    liveness = Liveness(store, cast("Kernel", OneUnread(("/run/docker/netns/1",))))
    with capture_logs() as logs:
        for _ in range(2):
            await put(store, RECORD)
            for _ in range(2):
                assert await liveness.without_in_use([RECORD]) == ()
            await store.put_endpoint(replace(RECORD, phase=Phase.DELETING))
            await store.remove_endpoint(RECORD.id)
    assert [one["event"] for one in logs] == ["endpoint.in_use"] * 2
