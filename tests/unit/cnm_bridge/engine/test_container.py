# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Of a container as the engine shows it one can tell whether it has another network."""

import pytest

from cnm_bridge.engine.container import has_name, has_other_network
from cnm_bridge.engine.network import EngineNetwork
from spec import JsonError, JsonObject

BLUE = EngineNetwork.from_json({"Id": "6f" * 32, "Name": "blue", "Scope": "swarm"})


def container(**networks: str) -> JsonObject:
    """Make a container on networks with these IDs."""
    return {
        "Names": ["/web", "/proxy/alias"],
        "NetworkSettings": {"Networks": {name: {"NetworkID": network_id} for name, network_id in networks.items()}},
    }


@pytest.mark.parametrize(
    ("networks", "others"),
    [
        ({}, False),
        ({"blue": ""}, False),
        ({"blue": BLUE.id}, False),
        ({BLUE.id: ""}, False),
        ({BLUE.id[:12]: ""}, False),
        ({"azure": BLUE.id}, False),
        ({"red": ""}, True),
        ({"blue": BLUE.id, "red": "71" * 32}, True),
        ({BLUE.id: "", "bridge": ""}, True),
    ],
)
def test_other_networks(networks: dict[str, str], *, others: bool) -> None:
    """A network is known by its name, its ID, or the beginning of it."""
    assert has_other_network(container(**networks), BLUE) is others


@pytest.mark.parametrize("document", [{}, {"NetworkSettings": None}, {"NetworkSettings": {"Networks": ["blue"]}}])
def test_half_an_answer(document: JsonObject) -> None:
    """It is not taken for a container without networks."""
    with pytest.raises(JsonError, match="Network"):
        has_other_network(document, BLUE)


def test_names() -> None:
    """Docker writes them with a slash; those that other containers use for a link have two."""
    assert has_name(container(), "web")
    assert not has_name(container(), "alias")
