# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon has in memory about an endpoint is removed with its record."""

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import CoroutineType, FrameType, FunctionType, ModuleType
from typing import Final

from cni_bridge_state import EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.errors import CannotPublish
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.planning.ports import PortClaims
from cnm_bridge.core.settings import Settings
from cnm_bridge.core.wire import ProgramExternalConnectivity
from cnm_bridge.driver.endpoints.unpublished_ports import Unpublished
from cnm_bridge.system.journal import Journal
from tests.records import endpoint

_NOT_KEPT: Final = (ModuleType, type, FrameType, CoroutineType, asyncio.AbstractEventLoop, asyncio.Task, Journal)
"""What is not searched. The journal keeps a fixed number of events, whatever they are about."""


def record(tmp_path: Path) -> EndpointRecord:
    """Return a joined endpoint with a published port and a sysctl to sync."""
    return replace(
        endpoint(
            "e" * 64,
            capability_args={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
        ),
        snapshot={
            "link": {"name": "eth0", "kind": "veth", "mac": "02:00:00:00:00:01", "mtu": 1500, "noarp": False},
            "addresses": [],
            "routes": [],
            "rules": [],
            "neighbours": [],
            "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "1"}],
            "qdisc": None,
        },
        sandbox_key=str(tmp_path / "sandbox"),
    )


def referents_of(one: object) -> list[object]:
    """Return what an object refers to; `gc.get_referents` omits the string keys of a dictionary."""
    keys = list(one) if isinstance(one, dict) else []
    return [*keys, *gc.get_referents(one)]


def reachable(root: object) -> Iterator[object]:
    """Yield all that an object keeps alive, without the contents of `_NOT_KEPT`."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _NOT_KEPT):
            continue
        seen.add(id(one))
        yield one
        apart = one.__globals__ if isinstance(one, FunctionType) else None
        waiting.extend(referent for referent in referents_of(one) if referent is not apart)


def find_holders(value: str, root: object) -> list[object]:
    """Return everything reachable that has a value among its elements or attributes."""
    return [
        one
        for one in reachable(root)
        if any(isinstance(referent, str) and referent == value for referent in referents_of(one))
    ]


async def test_nothing_is_kept_of_a_removed_endpoint(tmp_path: Path) -> None:
    """This also holds if neither Leave nor DeleteEndpoint came before its teardown, as after a crash of dockerd."""
    store = Store.open(tmp_path / "state")
    directories = Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run", docker_host=f"unix://{tmp_path}/no")
    daemon = assemble(directories, store)
    (unpublished,) = (one for one in reachable(daemon) if isinstance(one, Unpublished))
    (claims,) = (one for one in reachable(daemon) if isinstance(one, PortClaims))
    joined = record(tmp_path)
    assert find_holders(joined.id, daemon) == []
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINED):
        await store.put_endpoint(replace(joined, phase=phase))
    await daemon.endpoints.port_publisher.load()
    daemon.attach.sandbox_sync.join(Endpoint(joined))
    assert daemon.attach.sandbox_sync._wanted.get_nowait() == joined.id  # as `run` does
    daemon.attach.sandbox_sync.become_gateway(joined.id)
    request = ProgramExternalConnectivity(network_id=joined.network_id, endpoint_id=joined.id, ports=())
    await unpublished.accept(request, CannotPublish("ports cannot be published"))
    assert (daemon.attach.sandbox_sync._candidates, daemon.attach.sandbox_sync._gateways) == ({joined.id}, {joined.id})
    assert (len(claims.of(joined.id)), len(unpublished.reasons)) == (1, 1)
    await store.put_endpoint(replace(joined, phase=Phase.DELETING))
    await store.remove_endpoint(joined.id)
    # Of all endpoints together, these keep a fixed number of events and of IDs.
    daemon.resources.journal._events.clear()
    daemon.recovery.reconciler.comparison.search._torn_down.clear()
    assert find_holders(joined.id, daemon) == []
    store.close()
