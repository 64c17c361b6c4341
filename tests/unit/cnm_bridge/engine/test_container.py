# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether a container has other networks, as the engine reports them."""

import pytest

from cni_bridge_spec import JsonError, JsonObject
from cnm_bridge.engine.container import has_name, has_other_network
from cnm_bridge.engine.network import EngineNetwork

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
def test_a_container_has_another_network(networks: dict[str, str], *, others: bool) -> None:
    """A network is identified by its name, its ID, or the beginning of its ID."""
    assert has_other_network(container(**networks), BLUE) is others


@pytest.mark.parametrize("document", [{}, {"NetworkSettings": None}, {"NetworkSettings": {"Networks": ["blue"]}}])
def test_a_container_without_a_list_of_networks_is_an_error(document: JsonObject) -> None:
    """A missing or invalid list does not mean that the container has no networks."""
    with pytest.raises(JsonError, match="Network"):
        has_other_network(document, BLUE)


def test_the_name_of_a_container() -> None:
    """Docker writes it with a leading slash; names by which links refer to it have two slashes."""
    assert has_name(container(), "web")
    assert not has_name(container(), "alias")
