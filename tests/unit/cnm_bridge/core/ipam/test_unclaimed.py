# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the engine has lost is found, and what may be another engine's is not taken for it."""

from dataclasses import replace
from ipaddress import ip_address, ip_interface, ip_network

from cni_bridge_spec import JsonObject
from cni_bridge_state import AddressPhase, AddressPoolRecord, AddressRecord
from cnm_bridge.core.engine_facts.network import EngineIpamNetwork, has_ipam_driver
from cnm_bridge.core.ipam.unclaimed import find_unclaimed
from tests.records import address_pool, address_record

ENGINE = "AAAA"
SUBNET = ip_network("10.1.2.0/24")


def address(text: str, of: AddressPoolRecord) -> AddressRecord:
    """Return an address of a pool."""
    reserved = {"phase": AddressPhase.RESERVED, "address": ip_interface(f"{text}/24"), "name": None}
    return address_record(text, of.id, reservation=None, **reserved)


def network(*addresses: str, section: str = "lan") -> EngineIpamNetwork:
    """Return a network of the engine."""
    return EngineIpamNetwork(
        id="9f",
        name="lan",
        options={"cni.ipam": section},
        subnets=frozenset({SUBNET}),
        addresses=frozenset(map(ip_address, addresses)),
    )


def test_nothing_is_lost() -> None:
    """An address that the engine shows is claimed; the pool becomes the engine's."""
    one = address_pool("one")
    found = find_unclaimed([one], [address("10.1.2.3", one)], [network("10.1.2.3")], ENGINE)
    assert not found
    assert found.identified == (one,)


def test_an_address_without_an_endpoint() -> None:
    """It is unclaimed; one that is not RESERVED has its release anyway."""
    one = address_pool("one")
    lost, pending = address("10.1.2.3", one), address("10.1.2.4", one)
    releasing = replace(pending, phase=AddressPhase.RELEASING)
    found = find_unclaimed([one], [lost, releasing], [network()], ENGINE)
    assert (found.addresses, found.perhaps_foreign, found.pools) == ((lost,), (), ())


def test_a_network_without_the_option() -> None:
    """Compose sends no option: its network may be of any section that has the subnet."""
    one = address_pool("one")
    kept, lost = address("10.1.2.3", one), address("10.1.2.4", one)
    found = find_unclaimed([one], [kept, lost], [replace(network("10.1.2.3"), options={})], ENGINE)
    assert (found.addresses, found.identified) == ((lost,), (one,))


def test_a_network_that_is_gone() -> None:
    """The pool of this engine and its addresses are unclaimed, also if another section has a network."""
    one = address_pool("one", engine=ENGINE)
    lost = address("10.1.2.3", one)
    found = find_unclaimed([one], [lost], [network("10.1.2.3", section="wan")], ENGINE)
    assert (found.addresses, found.pools) == ((lost,), (one,))


def test_more_pools_than_networks() -> None:
    """A pool may be another engine's: its addresses are only reported, and without any it is forgotten."""
    one, two, empty = address_pool("one"), address_pool("two"), address_pool("empty")
    kept, lost = address("10.1.2.3", one), address("10.1.2.4", two)
    found = find_unclaimed([one, two, empty], [kept, lost], [network("10.1.2.3")], ENGINE)
    assert (found.addresses, found.perhaps_foreign, found.pools, found.identified) == ((), (lost,), (empty,), ())


def test_the_pool_of_another_engine() -> None:
    """Nothing of it is unclaimed."""
    one = address_pool("one", engine="BBBB")
    found = find_unclaimed([one], [address("10.1.2.3", one)], [], ENGINE)
    assert (found.addresses, found.pools) == ((), ())
    assert found.perhaps_foreign


def test_what_the_engine_shows() -> None:
    """Addresses of endpoints, gateways and `--aux-address` are claimed, of both families."""
    document: JsonObject = {
        "Id": "9f3c",
        "Name": "lan",
        "IPAM": {
            "Driver": "cni-bridge",
            "Options": {"cni.ipam": "lan"},
            "Config": [
                {"Subnet": "10.1.2.0/24", "Gateway": "10.1.2.1/24", "AuxiliaryAddresses": {"printer": "10.1.2.9"}},
                {"Subnet": "fd00::/64"},
            ],
        },
        "Containers": {
            "b1": {"Name": "web", "EndpointID": "7", "IPv4Address": "10.1.2.3/24", "IPv6Address": "fd00::3/64"},
            "ep-8": {"EndpointID": "8", "IPv4Address": "10.1.2.4/24"},
        },
    }
    found = EngineIpamNetwork.from_json(document)
    assert found.addresses == frozenset(map(ip_address, ("10.1.2.1", "10.1.2.9", "10.1.2.3", "10.1.2.4", "fd00::3")))
    assert found.subnets == {SUBNET, ip_network("fd00::/64")}
    assert has_ipam_driver(document, "cni-bridge")
    assert not has_ipam_driver({"IPAM": {"Driver": "default"}}, "cni-bridge")
