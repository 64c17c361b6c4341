# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon says about its endpoints, read for the doctor."""

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.checks import find_missing_rules
from cnm_bridge.operator.doctor.endpoints import DaemonEndpoints

PORT: JsonObject = {"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": ""}


@pytest.mark.parametrize(("ports", "is_missing"), [([], False), ([PORT], True)])
def test_the_rules_of_portmap(ports: list[JsonObject], *, is_missing: bool) -> None:
    """They are expected of a container with published ports, and none of another one on the same list."""
    endpoint: JsonObject = {
        "id": "1" * 64,
        "phase": "joined",
        "configuration": "blue",
        "addresses": ["10.22.0.2/16"],
        "ports": [*ports],
    }
    (joined,) = DaemonEndpoints.from_json({"endpoints": [endpoint]}, ()).joined
    portmap: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}
    missing = tuple(find_missing_rules([portmap], joined.addresses, joined.capability_args, (), ()))
    assert bool(missing) == is_missing
