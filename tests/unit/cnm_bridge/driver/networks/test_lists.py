# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The list by whose plugins the leftovers of a lost endpoint are removed."""

import json
from pathlib import Path

import pytest

from cni_bridge_state import NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.settings import Settings
from tests.plugins import FakePlugins


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
    settings = Settings(
        state_dir=tmp_path / "state",
        run_dir=tmp_path / "run",
        docker_host=f"unix://{tmp_path}/none",
        cni_conf_dirs=(conf,),
        cni_bin_dirs=(plugins.directory,),
    )
    for number, options in enumerate(({}, {"cni.egress.allow": "a.example"})):
        network = NetworkRecord(
            id=NetworkId(f"{number:064x}"), configuration=guarded, name="agents", internal=True, options=options
        )
        await store.put_network(network)
    found = await assemble(settings, store).lists.find_named("lan")
    expected = ["bridge", "egress"] if guarded == "lan" else ["bridge"]
    assert [plugin.type for plugin in found.plugins] == expected
