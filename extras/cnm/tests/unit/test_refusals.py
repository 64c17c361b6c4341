# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a driver means when it refuses DeleteEndpoint: only an endpoint that it does not have needs no further DEL."""

import pytest

from cni_bridge_spec import JsonObject
from cnm_plugin.messages import identity
from cnm_plugin.plugin import says_unknown

ENDPOINT, NETWORK = identity("e"), identity("n")
IDS: JsonObject = {"NetworkID": NETWORK, "EndpointID": ENDPOINT}


@pytest.mark.parametrize(
    "reason",
    [
        f"endpoint {ENDPOINT} not found",
        f"endpoint not found: {ENDPOINT}",
        "no such endpoint",
        f"No such endpoint: {ENDPOINT[:12]}",
        f"unknown endpoint {ENDPOINT[:7]}",
        f"unknown endpoint id {ENDPOINT}",
        f"Endpoint '{ENDPOINT}' does not exist",
        f"endpoint ({ENDPOINT}) doesn't exist",
        f"endpoint with id {ENDPOINT} could not be found",
        f"unable to find endpoint {ENDPOINT}",
        f"{ENDPOINT} not found",
        f"network {NETWORK} not found",
        f"network with id {NETWORK} does not exist",
    ],
)
def test_unknown_endpoints(reason: str) -> None:
    """Drivers have no code for this, only words."""
    assert says_unknown(reason, IDS)


@pytest.mark.parametrize(
    "reason",
    [
        'exec: "ovs-vsctl": executable file not found in $PATH',
        f'failed to delete endpoint {ENDPOINT}: exec: "ovs-vsctl": executable file not found in $PATH',
        f"cannot delete endpoint {ENDPOINT}, iptables: No such file or directory",
        f"delete endpoint {ENDPOINT} failed: Link not found",
        f"endpoint {ENDPOINT} is busy: unknown reason",
        "unknown error",
        "HTTP status 500",
    ],
)
def test_other_failures(reason: str) -> None:
    """Something else is missing: the endpoint is still there."""
    assert not says_unknown(reason, IDS)
