# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A network as the engine describes it."""

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.engine_facts.network import EngineNetwork

IPV4, IPV6 = "10.22.0.0/16", "fd22::/64"
DOCUMENT: JsonObject = {"Id": "6f" * 32, "Name": "shop_blue", "Internal": False, "Containers": {}}


@pytest.mark.parametrize(
    ("families", "subnets"),
    [
        ({"EnableIPv6": True}, (IPV4, IPV6)),  # before Engine 28
        ({"EnableIPv6": False}, (IPV4,)),
        ({"EnableIPv4": True, "EnableIPv6": False}, (IPV4,)),
        ({"EnableIPv4": False, "EnableIPv6": True}, (IPV6,)),
        ({"EnableIPv4": False, "EnableIPv6": False}, ()),
    ],
)
def test_a_family_that_is_switched_off_has_no_pool(families: JsonObject, subnets: tuple[str, ...]) -> None:
    """Docker still shows its subnet, and assigns no address from it."""
    pools: list[JsonObject] = [{"Subnet": IPV4}, {"Subnet": IPV6}]
    document: JsonObject = {**DOCUMENT, "IPAM": {"Config": [*pools]}, **families}
    assert tuple(str(pool.subnet) for pool in EngineNetwork.from_json(document).pools) == subnets


@pytest.mark.parametrize(
    ("labels", "name"),
    [(None, None), ({}, None), ({"com.docker.compose.network": "blue"}, "blue")],
    ids=["no labels", "other labels", "made by compose"],
)
def test_the_name_in_a_compose_file(labels: JsonObject | None, name: str | None) -> None:
    """Compose puts the project's name before it, and keeps it as a label."""
    assert EngineNetwork.from_json({**DOCUMENT, "Labels": labels}).compose_name == name
