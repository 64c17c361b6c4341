# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's status: networks and endpoints, pending teardowns; see `spec/admin/status.json`."""

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cni_bridge_spec import JsonObject, JsonValue
from cni_bridge_state.store import Store
from cni_invoker.advanced import find_running
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.driver.endpoints.unpublished_ports import Unpublished
from cnm_bridge.driver.networks.configuration_watch import ConfigurationWatch
from cnm_bridge.driver.recovery.lease_keeper import LeaseKeeper
from cnm_bridge.driver.recovery.reconciler import Reconciler
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.document import describe_endpoint, describe_networks, describe_pending, with_many
from cnm_bridge.server.admin.ipam import IpamDocuments


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """Builds the status document.

    Attributes:
        running_dir: The directory that records the running plugins.
        state_dir: The directory of the state.
    """

    store: Store
    teardowns: TeardownQueue
    reconcile: Reconciler
    unpublished: Unpublished
    dhcp: LeaseKeeper
    watch: ConfigurationWatch
    running_dir: Path
    state_dir: Path
    ipam: IpamDocuments

    def _look(self) -> tuple[list[JsonValue], int | None]:
        """Return the plugins that run now, and the free bytes of the state's disk, None if it is not readable."""
        running: list[JsonValue] = []
        free_bytes = None
        with suppress(OSError):
            running = [
                {
                    "plugin": one.plugin,
                    "verb": one.verb,
                    "containerId": one.container_id,
                    "ageS": round(one.age_s, 1),
                }
                for one in find_running(self.running_dir)
            ]
        with suppress(OSError):
            free_bytes = shutil.disk_usage(self.state_dir).free
        return running, free_bytes

    async def render(self, _: Mapping[str, str]) -> bytes:
        """Return the document as JSON."""
        running, free_bytes = await asyncio.to_thread(self._look)
        document: JsonObject = {
            "runningPlugins": running,
            "disk": {"path": str(self.state_dir), "freeBytes": free_bytes},
            "engine": {
                "isUp": self.reconcile.engine_is_up,
                "identity": self.store.engine_identity(),
                "rounds": self.reconcile.rounds,
            },
            "networks": await describe_networks(self.store, self.watch),
            "lists": [*await self.watch.names()],
            "pendingTeardowns": describe_pending(self.teardowns),
            "untriedTeardowns": [*sorted(self.teardowns.untried)],
            "dhcp": [
                {
                    "socket": str(socket),
                    "error": state.error,
                    "lost": [{"endpointId": one, "error": error} for one, error in state.lost.items()],
                }
                for socket, state in self.dhcp.states.items()
            ],
            "pools": self.ipam.describe_pools(),
            "pendingReleases": self.ipam.describe_pending(),
        }
        endpoints = (describe_endpoint(Endpoint(record), self.unpublished) for record in self.store.endpoints())
        return await with_many(document, "endpoints", endpoints)
