# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Join of endpoints whose plugins run in the sandbox itself."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Limits, Runtime
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link_state import LinkState, Snapshot
from cnm_bridge.system.kernel import Kernel
from tests.kernel.attachers import make_attachers
from tests.kernel.namespace import Namespace
from tests.plugins import FakePlugins
from tests.records import endpoint


async def put_ready(store: Store, number: int, sandbox: Path, *chained: JsonObject) -> EndpointRecord:
    """Store an endpoint whose addresses are reserved, and return it as it is at Join."""
    ifname = f"box{number}"
    plugins: list[JsonObject] = [{"type": "bridge", "ipam": {"type": "host-local"}}, *chained]
    made = endpoint(f"{number}" * 64, Phase.PENDING, plugins=plugins)
    link = LinkState(name=ifname, kind="veth", mac=None, mtu=0, noarp=False)
    result: JsonObject = {"cniVersion": "1.0.0", "ips": [{"address": f"10.1.0.{number}/24"}]}
    made = replace(
        made,
        attachment=replace(made.attachment, mode=AttachMode.HYBRID, reservation=result, ifname=ifname),
        ifname_prefix="box",
        snapshot=Snapshot(link=link, addresses=(), routes=()).to_json(),
        added_plugins=1,
        deleted=tuple(range(1, len(plugins) + 1)),
    )
    for phase in (Phase.PENDING, Phase.READY):
        await store.put_endpoint(replace(made, phase=phase))
    return replace(made, phase=Phase.READY, sandbox_key=str(sandbox))


async def test_a_joined_endpoint_without_a_pin(
    store: Store, kernel: Kernel, tmp_path: Path, sandbox: Namespace
) -> None:
    """Docker has it in a sandbox, and its record does not: without a pin it was moved, and the operator sees why."""
    attacher = make_attachers(store, Runtime([tmp_path], Limits()), kernel, tmp_path / "run")[AttachMode.HYBRID]
    joined = attacher.joined_record(await put_ready(store, 1, sandbox.path))
    assert joined.attachment.mode is AttachMode.MOVE
    assert joined.attachment.mode_reason == "its record was out of date, and its sandbox is not pinned"


async def test_two_joins_into_one_sandbox(store: Store, kernel: Kernel, tmp_path: Path, sandbox: Namespace) -> None:
    """Only one of them makes its link there, even if both come at the same time: Docker would panic with two."""
    fakes = FakePlugins(tmp_path / "bin")
    fakes.install("bridge")
    await store.put_engine_version("28.5")
    runtime = Runtime([fakes.directory], Limits())
    attacher = make_attachers(store, runtime, kernel, tmp_path / "run")[AttachMode.HYBRID]
    records = [await put_ready(store, number, sandbox.path) for number in (1, 2)]
    joins = [attacher.attach(replace(one, ifname_prefix="eth")) for one in records]
    errors = await asyncio.gather(*joins, return_exceptions=True)
    await kernel.remove_staging(tmp_path / "run/sandboxes" / records[0].id)
    # this bridge makes no link
    assert "made no link box1 in the container" in str(errors[0])
    assert "a link called box2 cannot be made in the sandbox: the sandbox has a link" in str(errors[1])


async def test_a_list_that_cannot_be_moved(store: Store, kernel: Kernel, tmp_path: Path, sandbox: Namespace) -> None:
    """While dockerd boots, its link is made in the sandbox; without a sandbox the error says what cannot be moved."""
    fakes = FakePlugins(tmp_path / "bin")
    for plugin in ("bridge", "vrf"):
        fakes.install(plugin)
    await store.put_engine_version("28.5")
    runtime = Runtime([fakes.directory], Limits())
    attacher = make_attachers(store, runtime, kernel, tmp_path / "run")[AttachMode.HYBRID]
    ready = await put_ready(store, 0, sandbox.path, {"type": "vrf", "vrfname": "red"})
    nowhere = replace(ready, sandbox_key=str(tmp_path / "missing"))
    with pytest.raises(
        Refused, match=r"the sandbox does not exist yet; .* because of plugin vrf: .*[.]ifname=NAME [(]compose: .*[)]$"
    ):
        await attacher.attach(nowhere)
    assert not fakes.commands
    with pytest.raises(Refused, match="made no link box0 in the container"):  # this bridge makes none
        await attacher.attach(ready)
    await kernel.remove_staging(tmp_path / "run/sandboxes" / ready.id)
    assert {command.environment["CNI_NETNS"] for command in fakes.commands} == {
        str(tmp_path / "run/sandboxes" / ready.id)
    }
