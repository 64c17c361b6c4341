# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The status call on the plugin socket."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import NetworkRecord
from tests.contract.serving import serving
from tests.kernel.records import NETWORK, endpoint, put

SHOWN: JsonObject = {
    "networkId": NETWORK,
    "phase": "joined",
    "mode": "move",
    "configuration": "lan",
    "addresses": [],
    "sandboxKey": None,
    "notPublished": None,
}


@pytest.mark.parametrize("count", [0, 1, 3])
async def test_status_has_all_networks_and_endpoints(tmp_path: Path, count: int) -> None:
    """The document is one JSON object, however many endpoints there are."""
    ids = [f"{number:064x}" for number in range(count)]
    async with serving(tmp_path) as served:
        await served.store.put_network(
            NetworkRecord(id=NETWORK, configuration="lan", name=None, internal=False, options={})
        )
        for endpoint_id in ids:
            await put(served.store, endpoint(endpoint_id))
        status, document = await served.post("CniBridge.Status", b"")
    assert status == 200
    assert document == {
        "engine": {"isUp": False, "identity": None, "rounds": 0},
        "networks": [{"id": NETWORK, "name": None, "configuration": "lan", "internal": False}],
        "endpoints": [{"id": endpoint_id, **SHOWN} for endpoint_id in ids],
        "pendingTeardowns": [],
        "orphans": [],
    }
