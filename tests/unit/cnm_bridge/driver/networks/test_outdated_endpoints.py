# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The endpoints that were made before their list changed are counted."""

import json
from dataclasses import replace
from pathlib import Path

from cni_bridge_spec import JsonObject
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.planning.plan import configuration_digest
from cnm_bridge.driver.networks.lists import count_outdated
from tests.records import NETWORK, endpoint, put


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
