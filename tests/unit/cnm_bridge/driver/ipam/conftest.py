# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A scene for tests of holds."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from cni_bridge_state import (
    NetworkRecord,
)
from cni_bridge_state.store import Store
from cnm_bridge.driver.ipam import holds as module
from cnm_bridge.driver.ipam.hold_reservations import HoldReservations
from cnm_bridge.driver.ipam.hold_settlements import HoldSettlements
from cnm_bridge.driver.ipam.holds import Holds
from cnm_bridge.driver.ipam.plugin_runs import PluginRuns
from cnm_bridge.driver.teardown.dead_endpoints import DeadEndpoints
from tests.records import NETWORK
from tests.unit.cnm_bridge.driver.ipam.hold_scene import NoOther, Plugins, Scene


@pytest.fixture(name="scene")
async def make_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    """No key has anything; the engine's networks are known."""
    store = Store.open(tmp_path)
    await store.put_network(NetworkRecord(id=NETWORK, configuration="blue", name=None, internal=False, options={}))
    plugins = Plugins()
    reservations = HoldReservations(store, cast("PluginRuns", plugins))
    monkeypatch.setattr(module, "Contention", NoOther)
    dead = cast("DeadEndpoints", None)
    settlements = HoldSettlements(store=store, reservations=reservations)
    holds = Holds(store=store, reservations=reservations, dead=dead, settlements=settlements)
    scene = Scene(store, plugins, holds, settlements)
    settlements.clock = lambda: scene.now
    yield scene
    store.close()
