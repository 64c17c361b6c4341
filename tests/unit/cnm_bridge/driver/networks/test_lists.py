# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The list by whose plugins leftovers of a lost endpoint are removed, and the endpoints made before it changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories
from cnm_bridge.assembly import assemble
from cnm_bridge.core.planning.plan import configuration_digest
from cnm_bridge.driver.networks.lists import count_outdated
from tests.plugins import FakePlugins
from tests.records import NETWORK, endpoint, put, settings_in


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
        network = NetworkRecord(
            id=NetworkId(f"{number:064x}"), configuration=guarded, name="agents", internal=True, options=options
        )
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
