# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DEL of the IPAM plugin of mode *hybrid* receives what its ADD received, before the container was known."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import (
    AttachMode,
    EndpointId,
    EndpointRecord,
    IdentityRequest,
    RequestedInterface,
)
from cni_bridge_state.store import Store
from cni_invoker import NetworkConfigurationList, PluginFailed, Runtime
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.options.cni_options import Options
from cnm_bridge.core.planning.attach_choice import AttachChoice
from cnm_bridge.core.planning.plan import Plan
from cnm_bridge.core.planning.records import planned_record
from cnm_bridge.core.wire import CreateEndpoint
from cnm_bridge.driver.attach.attacher import Attachers
from cnm_bridge.driver.attach.place_finder import SandboxOwner, SandboxOwners
from cnm_bridge.driver.teardown.pending import PendingTeardowns, Undo
from cnm_bridge.driver.teardown.teardown import Teardown
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.known_version import KnownVersion
from tests.kernel.attachers import make_attachers, make_teardown
from tests.kernel.namespace import Namespace
from tests.kernel.real_plugins import LIMITS, find_plugins
from tests.plugins import FakePlugins
from tests.records import network_record

ID: Final = EndpointId("1" * 64)
NETWORK: Final = network_record(name=None)
RESERVED: Final[JsonObject] = {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}]}
LIST: Final[JsonObject] = {
    "cniVersion": "1.0.0",
    "name": "lan",
    "plugins": [{"type": "ptp", "ipam": {"type": "whereabouts"}}, {"type": "last"}],
}
PASSES: Final[JsonObject] = {"passthrough": True}
FAILS: Final[JsonObject] = {"error": {"code": 999, "msg": "the policy is not known"}}
PLAN: Final = Plan(
    configuration=NetworkConfigurationList.from_document(LIST),
    args=(("IgnoreUnknown", "1"), ("IP", "10.1.0.9")),
    attach=AttachChoice(mode=AttachMode.HYBRID, reason="cni.attach=hybrid"),
    options=Options(identity=IdentityRequest(labels=("tier",))),
)
WAYS: Final = {"in the sandbox": AttachMode.HYBRID, "moved": AttachMode.MOVE}
"""The mode after Join. If the engine's version is not known, the link is not made in the sandbox."""


LABELS: Final[JsonObject] = {"cni": {"labels": [{"key": "tier", "value": "front"}]}}
CHANGING: Final = frozenset({"CNI_COMMAND", "CNI_NETNS", "prevResult"})
"""What differs between verbs; at ADD of the IPAM plugin there is no sandbox yet."""


class OneContainer(SandboxOwners):
    """An engine that has one container."""

    async def find(self, sandbox: Path) -> SandboxOwner:  # noqa: ARG002
        """Return the container."""
        return SandboxOwner(
            container=EngineContainer(
                id="c" * 64,
                name="shop-web-1",
                image="busybox:1",
                labels={"tier": "front"},
                document={"NetworkSettings": {"Networks": {"lan": {"NetworkID": NETWORK.id}}}},
            )
        )


@dataclass(frozen=True, slots=True)
class Host:
    """The parts of the daemon that run plugins for one endpoint.

    Attributes:
        store: Its record.
        attachers: The attachers.
        pending: Its pending teardown, if there is one.
        teardown: The teardown.
        fakes: The IPAM plugin and the last plugin of the list; the first one is real.
        run_dir: The parent directory of its namespaces.
        sandbox: The container's sandbox.
        mode: Its mode after Join.
    """

    store: Store
    attachers: Attachers
    pending: PendingTeardowns
    teardown: Teardown
    fakes: FakePlugins
    run_dir: Path
    sandbox: Namespace
    mode: AttachMode

    @property
    def record(self) -> EndpointRecord:
        """Its record as it is stored."""
        return self.store.get_endpoint(ID)

    async def create(self) -> None:
        """Run the IPAM plugin."""
        request = CreateEndpoint(endpoint_id=ID, network_id=NETWORK.id, requested=RequestedInterface(), options={})
        record = planned_record(request, PLAN, None, run_dir=self.run_dir, boot_id="0c1f", now_s=1.5)
        await self.store.put_endpoint(record)
        await self.attachers[AttachMode.HYBRID].prepare(record, PLAN)

    async def join(self) -> None:
        """Run the other plugins."""
        record = replace(self.record, sandbox_key=str(self.sandbox.path))
        await self.attachers[AttachMode.HYBRID].attach(record)

    def received(self, plugin: str, verb: str) -> list[JsonObject]:
        """Return what a plugin received in each execution, without verb, namespace and previous result."""
        return [
            {
                **{key: value for key, value in command.environment.items() if key not in CHANGING},
                **{key: value for key, value in command.stdin.items() if key not in CHANGING},
            }
            for command in self.fakes.commands
            if (command.plugin, command.verb) == (plugin, verb)
        ]


@pytest.fixture
async def host(
    request: pytest.FixtureRequest, store: Store, kernel: Kernel, sandbox: Namespace, tmp_path: Path
) -> Host:
    """A host on which the endpoint is attached in one of the ways."""
    mode = WAYS[request.param]
    if mode is AttachMode.HYBRID:
        await store.put_engine_version("28.5")
    fakes = FakePlugins(tmp_path / "bin")
    fakes.install("whereabouts", ADD={"result": RESERVED})
    fakes.install("last", ADD=PASSES)
    for name in ("ptp", "static"):
        (fakes.directory / name).symlink_to(find_plugins("machine").directory / name)
    run_dir = tmp_path / "run"
    owners = OneContainer(kernel, Engine(f"unix://{run_dir}/none", 1.0), KnownVersion(store))
    attachers = make_attachers(store, Runtime([fakes.directory], LIMITS), kernel, run_dir, owners)
    pending = PendingTeardowns()
    teardown = make_teardown(store, attachers, kernel, run_dir, pending=pending)
    return Host(store, attachers, pending, teardown, fakes, run_dir, sandbox, mode)


def is_identified(received: JsonObject) -> bool:
    """Return whether an execution received arguments and labels of the container."""
    return "DOCKER_CONTAINER_NAME=shop-web-1" in str(received["CNI_ARGS"]) and received.get("args") == LABELS


@pytest.mark.parametrize("host", WAYS, indirect=True)
async def test_a_joined_endpoint(host: Host) -> None:
    """The other plugins receive the identity at ADD and DEL, and the IPAM plugin at neither."""
    await host.create()
    await host.join()
    assert host.record.attachment.mode is host.mode
    assert host.record.added_plugins == len(Endpoint(host.record).network.plugins)
    await host.teardown(host.record)
    (added,), (deleted,) = (host.received("whereabouts", verb) for verb in ("ADD", "DEL"))
    assert deleted == added
    assert added["CNI_ARGS"] == "IgnoreUnknown=1;IP=10.1.0.9"
    (added,), (deleted,) = (host.received("last", verb) for verb in ("ADD", "DEL"))
    assert deleted == added
    assert is_identified(added)


@pytest.mark.parametrize("host", WAYS, indirect=True)
async def test_a_join_that_failed(host: Host) -> None:
    """The reservation is released as it was made, also if DEL of a plugin whose ADD failed fails."""
    host.fakes.install("last", ADD=FAILS, DEL=[FAILS, FAILS, {}])
    await host.create()
    with pytest.raises(PluginFailed, match="the policy is not known"):
        await host.join()
    with pytest.raises(PluginFailed, match="the policy is not known"):
        await host.teardown(host.record)
    assert host.received("whereabouts", "DEL") == host.received("whereabouts", "ADD")
    await host.teardown(host.record)
    assert len(host.received("whereabouts", "DEL")) == 1


@pytest.mark.parametrize("host", WAYS, indirect=True)
async def test_another_attempt_at_join(host: Host) -> None:
    """The reservation is kept between the attempts; each attempt gives the identity to the other plugins."""
    host.fakes.install("last", ADD=[FAILS, PASSES])
    await host.create()
    kept = host.record
    with pytest.raises(PluginFailed, match="the policy is not known"):
        await host.join()
    host.pending.add(kept.id).undo = Undo(kept)
    await host.teardown(host.record)
    assert host.received("whereabouts", "DEL") == []
    await host.join()
    await host.teardown(host.record)
    assert host.received("whereabouts", "DEL") == host.received("whereabouts", "ADD")
    assert [is_identified(one) for verb in ("ADD", "DEL") for one in host.received("last", verb)] == [True] * 4


@pytest.mark.parametrize("host", ["in the sandbox"], indirect=True)
async def test_a_reservation_alone(host: Host) -> None:
    """An endpoint that was never joined: nothing has changed since ADD."""
    await host.create()
    await host.teardown(host.record)
    assert host.received("whereabouts", "DEL") == host.received("whereabouts", "ADD")
