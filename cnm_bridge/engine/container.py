# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The networks of a container as the engine shows them; pure.

The relevant part of one element of `GET /containers/json` (Docker Engine API 1.41 and later):

```
{"Names": ["/web"],
 "NetworkSettings": {"Networks": {"blue": {"NetworkID": "6f9c…", "EndpointID": "77ad…"}, "red": {"NetworkID": ""}}}}
```

dockerd returns, without a lock, a copy that it makes whenever it stores the container. The key of a network is the name
that was used to connect the container, which may be the beginning of its ID. `NetworkID` is empty before the first
start. A network that a running container is being connected to is not included yet.
"""

from cni_bridge_spec import JsonObject, find_str, get_object, get_strings
from cnm_bridge.engine.network import EngineNetwork

__all__ = ["has_name", "has_other_network"]


def has_name(container: JsonObject, name: str) -> bool:
    """Return whether a container is called `name`."""
    return f"/{name}" in get_strings(container, "Names")


def has_other_network(container: JsonObject, network: EngineNetwork) -> bool:
    """Return whether a container has a network besides `network`.

    Raises:
        JsonError: A key is missing or its value has another type.
        ValueError: The document is incomplete.
    """
    networks = get_object(get_object(container, "NetworkSettings"), "Networks")
    return any(
        name != network.name
        and not network.id.startswith(name)
        and find_str(get_object(networks, name), "NetworkID") != network.id
        for name in networks
    )
