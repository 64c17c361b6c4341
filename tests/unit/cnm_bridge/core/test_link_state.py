# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The snapshot as JSON, as in the documentation and in the schema, and what routers have announced beside it."""

import inspect
import json
import re
from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

import pytest

from cni_bridge_spec import JsonObject, as_object, load_validator, parse_json, render_json
from cnm_bridge.core import link_state
from cnm_bridge.core.link_state import LinkState, Neighbour, Rule, Snapshot, Sysctl, find_dynamic, without_announced
from tests.unit.cnm_bridge.core.snapshots import address, route

FULL = Snapshot(
    link=LinkState(name="eth0", kind="veth", mac="ee:77:5c:0d:4a:3b", mtu=1500, noarp=False),
    addresses=(
        replace(address("10.1.2.3/24"), peer=ip_address("10.1.2.9"), broadcast=ip_address("10.1.2.255")),
        address("fd00::3/64", flags=130),
    ),
    routes=(
        route(
            *("10.4.0.0/16", "fe80::1"),
            source="10.1.2.3",
            table=1000,
            metric=5,
            scope=253,
            protocol=4,
            onlink=True,
            mtu=1400,
            advmss=1200,
        ),
    ),
    rules=(Rule(priority=100, table=1000, message=bytes(range(16))),),
    neighbours=(
        Neighbour(address=ip_address("10.1.2.9"), mac="02:00:00:00:00:09", proxy=False),
        Neighbour(address=ip_address("fd00::9"), mac=None, proxy=True),
    ),
    sysctls=(Sysctl(name="net/ipv4/conf/eth0/arp_notify", value="1"),),
)
BARE = Snapshot(
    link=LinkState(name="eth0", kind=None, mac=None, mtu=1500, noarp=True),
    addresses=(),
    routes=(route("::/0", metric=1024, scope=0),),
)


def documented() -> JsonObject:
    """Return the example in the module's docstring."""
    found = re.search(r"```\n(.*?)```", inspect.getdoc(link_state) or "", re.DOTALL)
    assert found is not None
    return as_object(json.loads(found[1]), "example")


@pytest.mark.parametrize("original", [FULL, BARE])
def test_a_stored_snapshot_is_read_unchanged(original: Snapshot) -> None:
    """A snapshot parsed from its JSON equals the original."""
    stored = render_json(original.to_json())
    assert Snapshot.from_json(as_object(parse_json(stored), "snapshot")) == original


def test_the_documented_example_is_complete() -> None:
    """Parsing and rendering gives the same document, with the same keys."""
    example = documented()
    assert Snapshot.from_json(example).to_json() == example


@pytest.mark.parametrize("document", [FULL.to_json(), BARE.to_json(), documented()])
def test_the_schema_accepts_every_snapshot(document: JsonObject) -> None:
    """Snapshots with and without optional values, and the documented example, are valid."""
    load_validator("state/snapshot")(document)


@pytest.mark.parametrize(
    ("key", "value"),
    [("mtu", None), ("gateway", "10.0.0.0/8"), ("destination", "10.1.2.3/24"), ("metric", "low")],
)
def test_an_invalid_snapshot_is_rejected(key: str, value: str | None) -> None:
    """A missing key, another type or an invalid address is an error."""
    document = json.loads(render_json(FULL.to_json()))
    document["link" if key == "mtu" else "routes"] = (
        {**document["link"], key: value} if key == "mtu" else [{**document["routes"][0], key: value}]
    )
    with pytest.raises(ValueError, match=r"mtu is null|metric must be|does not appear to be|has host bits set"):
        Snapshot.from_json(document)


ANNOUNCED, LEASED = 0x100, 0
OF_PLUGIN = address("fd00::3/64")
OF_ROUTER = address("fdaa::3/64", flags=ANNOUNCED)
LINK_LOCAL = address("fe80::3/64", scope=253)
OF_SERVER = address("10.1.2.3/24", flags=LEASED)
TO_PLUGINS = route("fd00::/64", scope=0, metric=256, protocol=2)
TO_ROUTERS = replace(TO_PLUGINS, destination=ip_network("fdaa::/64"))


def test_the_route_of_an_announced_prefix_is_left_out() -> None:
    """With and without an address in it."""
    assert without_announced([TO_PLUGINS, TO_ROUTERS], [OF_PLUGIN, OF_ROUTER]) == (TO_PLUGINS,)
    assert without_announced([TO_PLUGINS, TO_ROUTERS], [OF_PLUGIN]) == (TO_PLUGINS,)


def test_a_prefix_that_is_also_a_plugins_stays() -> None:
    """The kernel has one route for both."""
    also = replace(OF_ROUTER, address=ip_interface("fd00::9/64"))
    assert without_announced([TO_PLUGINS], [OF_PLUGIN, also]) == (TO_PLUGINS,)


def test_other_routes_stay() -> None:
    """Those of plugins, of IPv4, of another table, to a peer, and the link-local one."""
    to_peer = replace(TO_PLUGINS, destination=ip_network("fd09::9/128"))
    peer = replace(OF_PLUGIN, address=ip_interface("fd09::3/128"), peer=ip_address("fd09::9"))
    kept = (
        replace(TO_ROUTERS, protocol=3),
        replace(TO_ROUTERS, table=100),
        replace(TO_ROUTERS, gateway=ip_address("fe80::1")),
        replace(TO_ROUTERS, destination=ip_network("10.1.2.0/24"), scope=253),
        replace(TO_ROUTERS, destination=ip_network("fe80::/64")),
        to_peer,
    )
    assert without_announced(kept, [peer, OF_ROUTER]) == kept


def test_addresses_with_a_lifetime_are_dynamic() -> None:
    """Those of routers and of a DHCP client in the container; not the link-local one, which every link has."""
    found = find_dynamic([OF_SERVER, OF_PLUGIN, OF_ROUTER, replace(LINK_LOCAL, flags=0), LINK_LOCAL])
    assert found == (OF_SERVER.address, OF_ROUTER.address)
