# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's calls to a daemon in this process, without HTTP."""

import os
from collections.abc import Mapping
from typing import Final

from cni_bridge_spec import JsonObject, find_str, get_object
from cnm_bridge.assembly import Daemon

NETWORK: Final = "b" * 64


async def call(daemon: Daemon, method: str, body: JsonObject, *, service: str = "NetworkDriver") -> JsonObject:
    """Make a call of a service as Docker does, and return its reply."""
    (answer,) = (found.answer for found in daemon.methods if found.name == f"{service}.{method}")
    assert callable(answer)
    reply = await answer(body, os.getpid())
    assert not isinstance(reply, bytes)
    return reply


def reference(endpoint_id: str, network_id: str = NETWORK) -> JsonObject:
    """Return the part of a call's body that names an endpoint on a network."""
    return {"NetworkID": network_id, "EndpointID": endpoint_id}


async def create_network(daemon: Daemon, configuration: str, **options: str) -> None:
    """Make `NETWORK`, without a pool of Docker; further options are those after `cni.`."""
    await create_network_with(daemon, NETWORK, {"network": configuration, **options})


async def create_network_with(daemon: Daemon, network_id: str, options: Mapping[str, str]) -> None:
    """Make a network, without a pool of Docker; options are those after `cni.`."""
    given = {f"cni.{name}": value for name, value in options.items()}
    data: list[JsonObject] = [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}]
    generic: JsonObject = {"com.docker.network.generic": {**given}}
    body: JsonObject = {"NetworkID": network_id, "Options": generic, "IPv4Data": [*data], "IPv6Data": []}
    await call(daemon, "CreateNetwork", body)


async def create_endpoint(
    daemon: Daemon, endpoint_id: str, options: JsonObject | None = None, network_id: str = NETWORK
) -> str:
    """Make an endpoint; return its address, "" if Docker does not learn it."""
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    body: JsonObject = {**reference(endpoint_id, network_id), "Interface": interface, "Options": options or {}}
    return find_str(get_object(await call(daemon, "CreateEndpoint", body), "Interface"), "Address") or ""


async def delete_endpoint(daemon: Daemon, endpoint_id: str) -> None:
    """Delete an endpoint."""
    await call(daemon, "DeleteEndpoint", reference(endpoint_id))
