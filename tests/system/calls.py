# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The plugin socket, called as dockerd calls it, and the daemon's status."""

from typing import Final

from cni_bridge_spec import JsonObject, as_object, get_int, get_object, get_objects
from tests.lab import ADMIN_SOCKET, PLUGIN_SOCKET, Lab, wait_until
from tests.lab.unix_http import request

_LIMIT_S: Final = 60.0  # dockerd waits longer
NETWORK, ENDPOINT = "c0" * 32, "d0" * 32
SANDBOX = "/var/run/docker/netns/0123456789ab"
BOTH: JsonObject = {"NetworkID": NETWORK, "EndpointID": ENDPOINT}


def call(lab: Lab, method: str, body: JsonObject | None = None) -> JsonObject:
    """Call the daemon as dockerd does."""
    _, answer = lab.request(PLUGIN_SOCKET, "POST", f"/NetworkDriver.{method}", body, timeout_s=_LIMIT_S)
    return as_object(answer, method)


def create_network(lab: Lab, configuration: str) -> JsonObject:
    """Call CreateNetwork as Engine 20.10 does, for mode *move*, in which all plugins run in CreateEndpoint."""
    generic = {"com.docker.network.generic": {"cni.network": configuration, "cni.attach": "move"}}
    data = [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}]
    return call(lab, "CreateNetwork", {"NetworkID": NETWORK, "Options": generic, "IPv4Data": data, "IPv6Data": []})


def create_endpoint(lab: Lab, endpoint: JsonObject = BOTH) -> JsonObject:
    """Call CreateEndpoint as Engine 20.10 does."""
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    return call(lab, "CreateEndpoint", {**endpoint, "Interface": interface, "Options": {}})


def delete_endpoint(lab: Lab, endpoint: JsonObject = BOTH) -> None:
    """Call DeleteEndpoint as dockerd does, and wait for the teardown that it starts."""
    assert call(lab, "DeleteEndpoint", endpoint) == {}
    wait_torn_down(lab)


def ask_status(lab: Lab, socket: str = ADMIN_SOCKET) -> JsonObject:
    """Return the daemon's status, as at the admin socket."""
    _, answer = request(lab.path(socket), "GET", "/v1/status")
    return as_object(answer, "status")


def wait_reconciled(lab: Lab, socket: str = ADMIN_SOCKET) -> None:
    """Wait until a whole round of reconcile, begun after this call, has compared all records with the engine."""

    def rounds() -> int:
        return get_int(get_object(ask_status(lab, socket), "engine"), "rounds")

    wanted = rounds() + 2  # one may have begun before
    wait_until(lambda: rounds() >= wanted, "two rounds of reconcile", 60, poll_s=0.1)


def wait_torn_down(lab: Lab) -> None:
    """Wait until no deleted endpoint is in its first teardown attempt; teardowns that have failed may be pending."""

    def is_under_way() -> bool:
        status = ask_status(lab)
        teardowns = {one["endpointId"] for one in get_objects(status, "pendingTeardowns")}
        return any(
            one["phase"] == "deleting" and one["id"] not in teardowns for one in get_objects(status, "endpoints")
        )

    wait_until(lambda: not is_under_way(), "the end of the endpoints", 15, poll_s=0.02)
