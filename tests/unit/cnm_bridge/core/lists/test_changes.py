# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The list of mode *hybrid*: the IPAM plugin precedes all others, and `static` takes its place.

The expected documents must never change: plugins of existing endpoints receive them at DEL.
"""

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList, Result
from cnm_bridge.core.lists.changes import with_reservation, without_addresses

IPAM: JsonObject = {"type": "host-local", "subnet": "10.1.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}
BRIDGE: JsonObject = {
    "type": "bridge",
    "bridge": "br0",
    "capabilities": {"ips": True, "mac": True, "absent": False},
    "args": {"cni": {"ips": ["10.1.0.9"], "labels": []}, "other": 1},
    "ipam": IPAM,
}
FIREWALL: JsonObject = {"type": "firewall"}
LIST: JsonObject = {"cniVersion": "1.0.0", "name": "blue", "disableGC": True, "plugins": [BRIDGE, FIREWALL]}
RESULT: JsonObject = {
    "cniVersion": "1.0.0",
    "ips": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}, {"address": "fd00::9/64"}],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.1.0.7", "mtu": 1400}],
    "dns": {"nameservers": ["10.1.0.53"]},
}


def documents(reserved: JsonObject | None) -> list[JsonObject]:
    """Return the plugins' configurations with a reservation."""
    network = NetworkConfigurationList.from_document(LIST)
    found = with_reservation(network, None if reserved is None else Result.from_document(reserved))
    assert (found.name, found.cni_version, found.disable_gc) == ("blue", "1.0.0", True)
    return [plugin.document for plugin in found.plugins]


def test_before_the_reservation() -> None:
    """The IPAM plugin receives what the first plugin would pass to it; the others are unchanged."""
    reservation, *others = documents(None)
    assert reservation == {**BRIDGE, "type": "host-local", "capabilities": {"ips": True}}
    assert others == [BRIDGE, FIREWALL]


def test_after_the_reservation() -> None:
    """The first plugin receives the addresses from `static`, and nothing else requests addresses."""
    reservation, bridge, firewall = documents(RESULT)
    assert reservation == documents(None)[0]
    assert firewall == FIREWALL
    assert bridge == {
        "type": "bridge",
        "bridge": "br0",
        "capabilities": {"mac": True},
        "args": {"cni": {"labels": []}, "other": 1},
        "ipam": {
            "type": "static",
            "addresses": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}, {"address": "fd00::9/64"}],
            "routes": RESULT["routes"],
            "dns": RESULT["dns"],
        },
    }


def test_a_result_of_an_early_version() -> None:
    """Up to 0.2.0 routes belong to an address family; `static` has them in one place."""
    early: JsonObject = {
        "cniVersion": "0.2.0",
        "ip4": {"ip": "10.1.0.9/24", "gateway": "10.1.0.1", "routes": [{"dst": "0.0.0.0/0"}]},
    }
    ipam = documents(early)[1]["ipam"]
    assert ipam == {
        "type": "static",
        "addresses": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}],
        "routes": [{"dst": "0.0.0.0/0"}],
    }


def test_an_ipam_plugin_without_capabilities() -> None:
    """It receives no `runtimeConfig` at all."""
    plain = NetworkConfigurationList.from_document({**LIST, "plugins": [{"type": "ptp", "ipam": IPAM}]})
    assert [plugin.document for plugin in with_reservation(plain, None).plugins] == [
        {"type": "host-local", "ipam": IPAM},
        {"type": "ptp", "ipam": IPAM},
    ]


@pytest.mark.parametrize(("plugin", "capabilities"), [("bridge", {"mac": True}), ("tap", {"mac": True}), ("ptp", {})])
def test_plugins_that_take_a_mac(plugin: str, capabilities: JsonObject) -> None:
    """They receive the one that Docker learnt at CreateEndpoint, whether the list declares the capability or not."""
    plain = NetworkConfigurationList.from_document({**LIST, "plugins": [{"type": plugin, "ipam": IPAM}]})
    chain = with_reservation(plain, Result.from_document(RESULT)).plugins[1]
    assert chain.document["capabilities"] == capabilities


@pytest.mark.parametrize(
    ("args", "left"),
    [
        ((), ()),
        ((("IgnoreUnknown", "1"), ("IP", "10.1.0.9")), (("IgnoreUnknown", "1"),)),
        ((("GATEWAY", "10.1.0.1"), ("MAC", "02:00:00:00:00:01")), (("MAC", "02:00:00:00:00:01"),)),
    ],
)
def test_arguments_without_addresses(args: tuple[tuple[str, str], ...], left: tuple[tuple[str, str], ...]) -> None:
    """`static` would add them to the reserved addresses."""
    assert without_addresses(args) == left
