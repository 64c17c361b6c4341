# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The inventory is complete only if engine and kernel have no endpoint without a record."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from cni_bridge_state import NetworkId, NetworkRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.driver.recovery.plugin_gc import InventoryCheck
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel
from tests.kernel.engine import FakeEngine, network
from tests.kernel.namespace import Namespace
from tests.records import NETWORK, endpoint, put

OTHER = NetworkId("b" * 64)
KNOWN, UNKNOWN = "1" * 64, "2" * 64


@dataclass
class Host:
    """A daemon's view of a host."""

    store: Store
    engine: FakeEngine
    kernel: Kernel
    run_dir: Path

    async def find_gap(self) -> str | None:
        """Run the check under test."""
        engine = Engine(self.engine.host, 5)
        return await InventoryCheck(
            store=self.store, engine=engine, kernel=self.kernel, driver="cni-bridge", run_dir=self.run_dir
        ).find_gap()


@pytest.fixture(name="host")
async def make_host(store: Store, kernel: Kernel, tmp_path: Path) -> AsyncIterator[Host]:
    """A host whose only network and endpoint have records."""
    engine = FakeEngine(tmp_path / "engine", networks={NETWORK: network(NETWORK, KNOWN)})
    await store.put_network(NetworkRecord(id=NETWORK, configuration="lan", name=None, internal=False, options={}))
    await put(store, endpoint(KNOWN))
    await store.put_engine_identity(engine.identity)
    async with engine.running():
        yield Host(store, engine, kernel, tmp_path / "run")


async def test_a_complete_inventory(host: Host) -> None:
    """There is no gap; a recorded network that Docker has just removed is none either."""
    assert await host.find_gap() is None
    await host.store.put_network(NetworkRecord(id=OTHER, configuration="lan", name=None, internal=False, options={}))
    assert await host.find_gap() is None


@pytest.mark.parametrize("where", [NETWORK, OTHER], ids=["known network", "unknown network"])
@pytest.mark.parametrize("scope", ["local", "swarm"])
async def test_an_endpoint_without_a_record(host: Host, where: NetworkId, scope: str) -> None:
    """Docker has an endpoint without a record, on a network with or without a record: this is a gap."""
    host.engine.networks[where] = network(where, UNKNOWN, scope=scope)
    assert UNKNOWN in (await host.find_gap() or "")


async def test_another_engine_than_the_stored_one(host: Host) -> None:
    """Endpoints that this engine does not have may exist in another one: a changed identity is a gap."""
    host.engine.identity = "BBBB"
    assert "BBBB" in (await host.find_gap() or "")


async def test_another_name_of_the_driver(host: Host) -> None:
    """A network under a second name of the driver is missing in Docker's list of the driver's networks: a gap."""
    host.engine.networks[NETWORK] = network(NETWORK, KNOWN, driver="second-name")
    assert "second-name" in (await host.find_gap() or "")


async def test_an_engine_that_does_not_answer(host: Host) -> None:
    """An engine that is not reachable, or whose answer is incomplete, is a gap."""
    host.engine.networks[NETWORK] = {**network(NETWORK), "Containers": None}
    assert "Containers" in (await host.find_gap() or "")
    host.engine.path.unlink()
    assert "Docker Engine" in (await host.find_gap() or "")


async def test_a_link_in_a_sandbox_without_a_record(host: Host, sandbox: Namespace) -> None:
    """It is a gap, whatever Docker lists: the endpoint may be of another engine, or Docker may have lost its store."""
    altname = f"cni-bridge-{UNKNOWN}"
    sandbox.ip("link add marked type veth peer name other", f"link property add dev marked altname {altname}")
    assert UNKNOWN in (await host.find_gap() or "")
    sandbox.ip(f"link property del dev marked altname {altname}")
    sandbox.ip(f"link property add dev marked altname cni-bridge-{KNOWN}")
    sandbox.ip("link property add dev marked altname cni-bridge-uplink")
    assert await host.find_gap() is None
    sandbox.ip("link del marked")


async def test_an_endpoint_that_is_created_meanwhile(host: Host) -> None:
    """Its record is written before Docker lists it, so it is not a gap."""
    made = endpoint("3" * 64, Phase.PENDING)
    host.engine.networks[NETWORK] = network(NETWORK, KNOWN, made.id)
    host.engine.on_network = partial(put, host.store, made)
    assert await host.find_gap() is None
    assert host.store.find_endpoint(made.id) == made
