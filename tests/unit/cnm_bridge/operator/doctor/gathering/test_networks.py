# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is read about networks."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.doctor.gathering.networks import gather_networks


@pytest.mark.parametrize(
    ("ipam", "message"),
    [
        ({"subnet": 5}, "subnet must be a string, not a number"),
        ({"dataDir": 5, "subnet": "10.1.0.0/24"}, "dataDir must be a string, not a number"),
    ],
)
async def test_a_list_that_its_plugins_cannot_parse(tmp_path: Path, ipam: JsonObject, message: str) -> None:
    """It is a problem of this network, and ends nothing."""
    plugin: JsonObject = {"type": "bridge", "ipam": {"type": "host-local", **ipam}}
    network = NetworkConfigurationList.from_document({"cniVersion": "1.0.0", "name": "blue", "plugins": [plugin]})
    (found,) = await gather_networks((network,), Settings(cni_bin_dirs=(tmp_path,)), quick=True)
    assert found.problems == (f"the plugins cannot parse it: {message}",)
    assert found.reserved == ()
