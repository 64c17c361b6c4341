# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The choice of an attach mode passes the options of the call, and asks `static` for its versions if that matters."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, DnsOption, IdentityRequest, RequestedInterface
from cni_invoker import Limits, NetworkConfigurationList, Runtime
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.options.cni_options import Options
from cnm_bridge.core.planning.attach_choice import AttachChoice
from cnm_bridge.core.planning.plan import PlanRequest
from cnm_bridge.core.settings import AttachOption
from cnm_bridge.driver.networks.plan_endpoint import plan_endpoint
from tests.plugins import FakePlugins

OLD, NEW = EngineVersion(27, 5), EngineVersion(28, 5)
BLUE: JsonObject = {
    "cniVersion": "1.0.0",
    "name": "blue",
    "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}],
}


@pytest.fixture
def plugins(tmp_path: Path) -> FakePlugins:
    """The plugin of the list, and `static`."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("bridge")
    plugins.install("static")
    return plugins


async def choose(
    plugins: FakePlugins,
    options: Options,
    *,
    default: AttachOption = AttachOption.AUTO,
    version: EngineVersion = NEW,
) -> AttachChoice:
    """Choose the mode for a network with these options."""
    network = NetworkConfigurationList.from_document(BLUE)
    wanted = PlanRequest(network=network, options=options, requested=RequestedInterface(), pools=(), internal=False)
    runtime = Runtime([plugins.directory], Limits())
    return (await plan_endpoint(wanted, runtime, default=default, version=version)).attach


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        (Options(), AttachMode.MOVE),
        (Options(ifname="wan7"), AttachMode.HYBRID),
        (Options(identity=IdentityRequest()), AttachMode.HYBRID),
    ],
)
async def test_the_options_of_the_call(plugins: FakePlugins, options: Options, mode: AttachMode) -> None:
    """By default they decide, and `static` is executed only for what cannot be moved."""
    assert (await choose(plugins, options)).mode is mode
    assert bool(plugins.commands) is (mode is AttachMode.HYBRID)


async def test_the_option_precedes_the_setting(plugins: FakePlugins) -> None:
    """The reason says which of them it was."""
    choice = await choose(plugins, Options(), default=AttachOption.MOVE)
    assert (choice.mode, choice.reason) == (AttachMode.MOVE, "the daemon's --attach=move")
    choice = await choose(plugins, Options(attach=AttachOption.SANDBOX), default=AttachOption.MOVE)
    assert (choice.mode, choice.reason) == (AttachMode.HYBRID, "cni.attach=sandbox")


async def test_name_servers_need_an_engine_that_calls_in_time(plugins: FakePlugins) -> None:
    """In every mode; the error names the engines."""
    with pytest.raises(Refused, match=r"cni.dns=search is not possible: Docker Engine 27.5 .*; 28.1 and newer do"):
        await choose(plugins, Options(dns=DnsOption.SEARCH), version=OLD)
    assert (await choose(plugins, Options(dns=DnsOption.SEARCH))).mode is AttachMode.MOVE
