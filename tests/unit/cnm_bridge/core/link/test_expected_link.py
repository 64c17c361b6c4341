# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What Docker learns of a link before it is made, and whether the plugins kept to it."""

from dataclasses import replace
from ipaddress import IPv4Interface, IPv6Interface, ip_address, ip_interface

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import RequestedInterface
from cni_invoker import Result
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link.endpoint_replies import choose_interface, reported_addresses
from cnm_bridge.core.link.expected_link import (
    DELEGATES,
    describe_expected,
    refuse_changed,
    refuse_missing_addresses,
    snapshot_for_move,
)
from cnm_bridge.core.link_state import SCOPE_LINK, Snapshot, Sysctl
from cnm_bridge.core.lists.changes import with_reservation
from cnm_bridge.core.wire import ChosenInterface
from tests.records import list_of
from tests.unit.cnm_bridge.core.snapshots import address, route

MAC = "02:00:00:00:00:01"
ADDRESSES = (ip_interface("10.1.0.9/24"), ip_interface("fd00::9/64"))
RESERVED: JsonObject = {
    "cniVersion": "1.0.0",
    "ips": [{"address": "10.1.0.9/24", "gateway": "10.1.0.1"}, {"address": "fd00::9/64"}],
    "routes": [{"dst": "0.0.0.0/0"}],
    "dns": {"nameservers": ["10.1.0.53"]},
}
NETWORK = with_reservation(list_of({"type": "bridge", "ipam": {"type": "host-local"}}), None)


def expected(plugin: str = "bridge", mac: str | None = MAC) -> Snapshot:
    """Return what is known of a link that a plugin will make."""
    return describe_expected(DELEGATES[plugin], "eth0", ADDRESSES, mac, [Sysctl(name="net/ipv4/x", value="1")])


@pytest.mark.parametrize("plugin", ["bridge", "ptp"])
@pytest.mark.parametrize("further", [(), (ip_interface("10.1.0.8/24"), ip_interface("fd00::8/64"))])
def test_docker_learns_addresses_and_mac(plugin: str, further: tuple[IPv4Interface | IPv6Interface, ...]) -> None:
    """It learns the first address of each family with its prefix, although `ptp` removes its route, and the MAC."""
    known = describe_expected(DELEGATES[plugin], "eth0", (*ADDRESSES, *further), MAC, ())
    assert choose_interface(known, RequestedInterface()) == ChosenInterface(
        address=IPv4Interface("10.1.0.9/24"), address_ipv6=IPv6Interface("fd00::9/64"), mac=MAC
    )


def test_a_link_that_is_moved_keeps_the_addresses_that_docker_has_learnt() -> None:
    """Docker configures those, also if the plugins removed the routes of the prefixes."""
    made = replace(expected("ptp"), routes=(route("10.1.0.1/32"), route("10.1.0.0/24", "10.1.0.1")), sysctls=())
    moved = Snapshot.from_json(snapshot_for_move(made, expected("ptp")).to_json())
    assert reported_addresses(made) == (ip_interface("10.1.0.9/32"), ip_interface("fd00::9/128"))
    assert reported_addresses(moved) == ADDRESSES
    assert moved.sysctls == expected().sysctls


def test_a_link_that_is_moved_has_the_mac_that_docker_has_learnt() -> None:
    """The kernel derives another link-local address from it; that of the plugins' MAC must not be added."""
    made = replace(expected(mac="02:00:00:00:00:07"), sysctls=expected().sysctls)
    automatic = address("fe80::ff:fe00:7/64", scope=SCOPE_LINK)
    assert snapshot_for_move(replace(made, addresses=(*made.addresses, automatic)), expected()) == expected()


def test_a_link_that_docker_knows_as_it_is_does_not_change() -> None:
    """Its prefixes have routes, or Docker has learnt single addresses."""
    single = replace(expected(), routes=())
    assert snapshot_for_move(expected(), expected()) == expected()
    assert snapshot_for_move(single, single) == single


@pytest.mark.parametrize("plugin", ["ipvlan", "host-device", "vlan"])
def test_docker_learns_no_mac_of_links_that_have_not_their_own(plugin: str) -> None:
    """Docker would show a wrong one."""
    assert choose_interface(expected(plugin, mac=None), RequestedInterface()).mac is None


def test_the_settings_of_the_options_are_part_of_it() -> None:
    """They survive a restart between CreateEndpoint and Join."""
    again = Snapshot.from_json(expected().to_json())
    assert again.sysctls == (Sysctl(name="net/ipv4/x", value="1"),)


def test_what_was_reserved_is_accepted() -> None:
    """A plugin may add routes, and the last plugin of a list may print no addresses."""
    reserved = Result.from_document(RESERVED)
    more = Result.from_document({**RESERVED, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16"}]})
    nothing = Result.from_document({"cniVersion": "1.0.0", "dns": RESERVED["dns"]})
    for result in (reserved, more, nothing):
        refuse_changed(NETWORK, reserved, result, expected())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ips": [{"address": "10.1.0.9/24", "gateway": "10.1.0.254"}]}, "gateway of 10.1.0.9/24 is 10.1.0.254"),
        ({"routes": [{"dst": "10.9.0.0/16"}]}, "no route to 0.0.0.0/0"),
        ({"routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.7"}]}, "no route to 0.0.0.0/0"),
        ({"dns": {"nameservers": ["8.8.8.8"]}}, "name servers are 8.8.8.8, not 10.1.0.53"),
    ],
)
def test_a_changed_result_is_refused(changes: JsonObject, message: str) -> None:
    """The error names the IPAM plugin, the difference, and a mode without it."""
    with pytest.raises(Refused, match=r"blue changed what their IPAM plugin host-local.*cni.attach=move") as caught:
        refuse_changed(
            NETWORK, Result.from_document(RESERVED), Result.from_document({**RESERVED, **changes}), expected()
        )
    assert message in str(caught.value)


def test_a_plugin_that_makes_single_addresses_of_those_it_is_given() -> None:
    """As Calico does: Docker learns what the link will have, and another address is still refused."""
    reserved, single = Result.from_document(RESERVED), (ip_interface("10.1.0.9/32"), ip_interface("fd00::9/128"))
    network = with_reservation(list_of({"type": "calico", "ipam": {"type": "calico-ipam"}}), None)
    foreseen = expected("calico", mac=None)
    assert reported_addresses(foreseen) == single
    printed = {**RESERVED, "ips": [{"address": "10.1.0.9/32", "gateway": "10.1.0.1"}, {"address": "fd00::9/128"}]}
    refuse_changed(network, reserved, Result.from_document(printed), foreseen)
    other = replace(foreseen, addresses=(address("10.1.0.8/32"),))
    with pytest.raises(Refused, match=r"the link has 10.1.0.8/32, not 10.1.0.9/32, fd00::9/128"):
        refuse_changed(network, reserved, Result.from_document(printed), other)
    moved = {**RESERVED, "ips": [{"address": "10.1.0.9/32", "gateway": "10.1.0.254"}]}
    with pytest.raises(Refused, match=r"gateway of 10.1.0.9/32 is 10.1.0.254"):
        refuse_changed(network, reserved, Result.from_document(moved), foreseen)


@pytest.mark.parametrize("made", [(), ADDRESSES[:1], (*ADDRESSES, ip_interface("10.1.0.10/24"))])
def test_other_addresses_are_refused(made: tuple[IPv4Interface | IPv6Interface, ...]) -> None:
    """The link itself is decisive, not what plugins print."""
    reserved = Result.from_document(RESERVED)
    given = describe_expected(DELEGATES["bridge"], "eth0", made, MAC, ())
    with pytest.raises(Refused, match=r"the link has .*, not 10.1.0.9/24, fd00::9/64"):
        refuse_changed(NETWORK, reserved, reserved, given)


def test_requested_addresses_must_be_there() -> None:
    """In mode *direct*, where nothing else is known before Join; further addresses are accepted."""
    wanted = replace(expected(), addresses=expected().addresses[:1])
    refuse_missing_addresses(NETWORK, [ip_address("10.1.0.9"), ip_address("fd00::9")], expected())
    with pytest.raises(Refused, match=r"did not assign fd00::9 but 10.1.0.9/24;"):
        refuse_missing_addresses(NETWORK, [ip_address("10.1.0.9"), ip_address("fd00::9")], wanted)
    with pytest.raises(Refused, match=r"did not assign 10.1.0.8 but"):
        refuse_missing_addresses(NETWORK, [ip_address("10.1.0.8")], expected())
