# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How an endpoint is planned: its attach mode and its list, also the one by whose plugins leftovers are removed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachMode, IdentityRequest, RequestedInterface
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories, Limits, NetworkConfigurationList, Runtime
from cnm_bridge.assembly import assemble
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.options.cni_options import Options
from cnm_bridge.core.planning.attach_choice import AttachChoice
from cnm_bridge.core.planning.plan import PlanRequest, configuration_digest
from cnm_bridge.core.settings import AttachOption
from cnm_bridge.driver.networks.lists import count_outdated
from cnm_bridge.driver.networks.plan_endpoint import plan_endpoint
from tests.plugins import FakePlugins
from tests.records import NETWORK, endpoint, network_record, put, settings_in

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


@pytest.mark.parametrize("guarded", ["lan", "other"])
async def test_leftovers_of_a_guarded_network(store: Store, tmp_path: Path, guarded: str) -> None:
    """If a network of the list is guarded by its options, `egress` runs DEL as well."""
    plugins = FakePlugins(tmp_path / "bin")
    for plugin in ("bridge", "egress"):
        plugins.install(plugin)
    conf = tmp_path / "conf"
    conf.mkdir()
    for name in ("lan", "other"):
        document = {"cniVersion": "1.0.0", "name": name, "plugins": [{"type": "bridge"}]}
        (conf / f"{name}.conflist").write_text(json.dumps(document))
    settings = settings_in(tmp_path, cni_conf_dirs=(conf,), cni_bin_dirs=(plugins.directory,))
    for number, options in enumerate(({}, {"cni.egress.allow": "a.example"})):
        network = network_record(f"{number:064x}", configuration=guarded, name="agents", internal=True, options=options)
        await store.put_network(network)
    found = await assemble(settings, store).networks.lists.find_named("lan")
    expected = ["bridge", "egress"] if guarded == "lan" else ["bridge"]
    assert [plugin.type for plugin in found.plugins] == expected


def document(*types: str) -> JsonObject:
    """Return the list `lan`."""
    return {"cniVersion": "1.0.0", "name": "lan", "plugins": [{"type": one} for one in types]}


async def test_changes_of_a_list_in_use(store: Store, tmp_path: Path) -> None:
    """A list that is removed has changed, too; restoring the old content ends it."""
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf/lan.conflist"
    directories = ConfigurationDirectories(tmp_path / "conf")
    await put(store, replace(endpoint("1" * 64), configuration_digest=configuration_digest(document("good"))))
    await put(store, endpoint("2" * 64))  # of an earlier version: nothing is known of its list
    for types, count in ((("good",), {}), (("good", "more"), {NETWORK: 1}), (("good",), {})):
        file.write_text(json.dumps(document(*types)))
        assert await count_outdated(store, directories) == count
    file.unlink()
    assert await count_outdated(store, directories) == {NETWORK: 1}
