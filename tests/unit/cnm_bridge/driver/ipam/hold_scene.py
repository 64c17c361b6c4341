# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Keys on a network, with an IPAM plugin of one address."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, find_str, get_object, get_objects
from cni_bridge_state import (
    EndpointId,
    HoldRecord,
    Phase,
    ReservationRecord,
)
from cni_bridge_state.store import Store
from cni_invoker import CniError, PluginFailed, Result
from cni_invoker.errors import PluginNotFound
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.wire import CreateEndpoint
from cnm_bridge.driver.ipam.hold_settlements import HoldSettlements
from cnm_bridge.driver.ipam.holds import Holds
from cnm_bridge.driver.teardown.contention import wait_deadline
from tests.records import NETWORK, endpoint, put
from tests.unit.cnm_bridge.core.planning.test_hold import SUBNET

ADDRESS: Final = "10.1.2.3"
WIDER: Final[JsonObject] = {**SUBNET, "routes": [{"dst": "192.0.2.0/24"}]}
"""The section after a change; the ranges have the address."""
ELSEWHERE: Final[JsonObject] = {**SUBNET, "dataDir": "/elsewhere"}
"""Another one, whose plugin does not know what it has reserved with the others."""
ENDPOINTS: Final = [EndpointId(digit * 64) for digit in "defabc"]


def refusal(text: str, code: int = 1) -> PluginFailed:
    """Return the error of a plugin that refuses."""
    where = {"plugin": "host-local", "verb": "ADD", "path": Path("/opt/cni/bin/host-local")}
    return PluginFailed(**where, code=code, msg=text, exit_status=1, signal=None, duration_s=0.01)  # type: ignore[arg-type]


@dataclass(slots=True)
class Plugins:
    """Stands in for the runs of an IPAM plugin with one address.

    Attributes:
        owners: Whose it is, for each directory of data.
        refuses: Whether the plugin refuses it for a section.
        delete_error: What a DEL with that section fails with.
        missing: Whether the plugin of a section is not installed.
        error: What an ADD fails with after it has reserved the address.
        hangs: Whether DEL and CHECK hang, until `resumed` is set.
        check_code: The code with which CHECK always fails.
    """

    netns: Path = Path("/run/netns/1")
    owners: dict[str, str | None] = field(default_factory=dict)
    refuses: Callable[[JsonObject], bool] = lambda _: False
    delete_error: CniError | None = None
    missing: Callable[[JsonObject], bool] = lambda _: False
    error: CniError | None = None
    hangs: bool = False
    resumed: asyncio.Event = field(default_factory=asyncio.Event)
    check_code: int | None = None

    @property
    def assigned(self) -> str | None:
        """Whose it is in the directory that the section names at first."""
        return self.owners.get("")

    @assigned.setter
    def assigned(self, owner: str | None) -> None:
        self.owners[""] = owner

    async def add(self, record: HoldRecord, reservation: ReservationRecord) -> Result:
        """Reserve the address."""
        document, directory = self._find(reservation)
        is_taken = self.owners.get(directory) is not None
        if is_taken or self.refuses(document):
            raise refusal(f"{ADDRESS} has been allocated" if is_taken else "it is excluded")
        self.owners[directory] = record.id
        if self.error is not None:
            raise self.error
        return Result.from_document({"cniVersion": "1.0.0", "ips": [{"address": f"{ADDRESS}/24"}]})

    async def delete(self, record: HoldRecord, reservation: ReservationRecord) -> None:
        """Release the address."""
        document, directory = self._find(reservation)
        if self.delete_error is not None and self.refuses(document):
            raise self.delete_error
        if self.hangs:
            await self.resumed.wait()
        if self.owners.get(directory) == record.id:
            self.owners[directory] = None

    async def check(self, record: HoldRecord, _: ReservationRecord) -> None:
        """Look for the reservation."""
        if self.hangs:
            await self.resumed.wait()
        if self.check_code is not None:
            raise refusal("there is no answer", self.check_code)
        if self.assigned != record.id:
            raise refusal("Failed to find address added by container", 999)

    def _find(self, reservation: ReservationRecord) -> tuple[JsonObject, str]:
        """Return the plugin's configuration, and the directory of its data."""
        (document,) = get_objects(reservation.configuration, "plugins")
        if self.missing(document):
            raise PluginNotFound(plugin="host-local", directories=[Path("/opt/cni/bin")])
        return document, find_str(get_object(document, "ipam"), "dataDir") or ""

    def lose(self) -> None:
        """Lose the reservation."""
        self.assigned = None

    async def tidy(self, _: Callable[[], bool]) -> None:
        """There is no namespace."""


class NoOther:
    """Stands in for contention: no other endpoint leaves."""

    def __init__(self, _dead: object, _network: str, deadline: float, *_: object) -> None:
        self.deadline = deadline

    def note_attempt(self) -> None:
        """None leaves."""

    async def wait_or_raise(self, exc: PluginFailed) -> None:
        """There is nothing to wait for."""
        raise exc

    async def wait_for_holder(self, _: EndpointId, what: str, remedy: str) -> None:
        """It does not go."""
        raise Refused(f"another endpoint has the same {what}; {remedy}")


@dataclass(slots=True)
class Scene:
    """The holds of a network, and its endpoints."""

    store: Store
    plugins: Plugins
    holds: Holds
    settlements: HoldSettlements
    now: float = 1000.0
    numbers: list[EndpointId] = field(default_factory=lambda: list(ENDPOINTS))

    async def create(self, wanted: Plan, *, until: Phase = Phase.READY) -> EndpointId:
        """Create an endpoint, in READY or JOINED."""
        request = self.request(wanted)
        async with self.holds.holding(request, wanted, wait_deadline()):
            await put(self.store, replace(endpoint(request.endpoint_id, Phase.READY), addresses=(ADDRESS,)))
        if until is Phase.JOINED:
            await self.join(request.endpoint_id)
        return request.endpoint_id

    async def settle(self) -> None:
        """Do what is due, and wait for it."""
        async with asyncio.TaskGroup() as tasks:
            self.settlements.begin(tasks)

    async def fail(self, wanted: Plan, until: Phase) -> None:
        """Create an endpoint that fails in PENDING, or at Join in READY; settle what follows."""
        if until is Phase.READY:
            await self.remove(await self.create(wanted))
            return
        with pytest.raises(RuntimeError):
            async with self.holds.holding(self.request(wanted), wanted, wait_deadline()):
                raise RuntimeError("a plugin fails")
        await self.settle()

    def request(self, wanted: Plan) -> CreateEndpoint:
        """Return the call for the next endpoint."""
        return CreateEndpoint(
            network_id=NETWORK, endpoint_id=self.numbers.pop(0), requested=wanted.requested, options={}
        )

    async def join(self, endpoint_id: EndpointId) -> None:
        """Attach an endpoint."""
        await self.store.put_endpoint(replace(self.store.get_endpoint(endpoint_id), phase=Phase.JOINED))
        await self.holds.note_joined(endpoint_id)

    async def remove(self, endpoint_id: EndpointId) -> None:
        """Remove an endpoint, and settle what follows."""
        await self.store.put_endpoint(replace(self.store.get_endpoint(endpoint_id), phase=Phase.DELETING))
        await self.store.remove_endpoint(endpoint_id)
        self.settlements.note_endpoint_gone(endpoint_id)
        await self.settle()

    @property
    def hold(self) -> HoldRecord:
        """What the key has."""
        (found,) = self.store.ipam.holds()
        return found
