# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which lists guard, and what a guarded network needs of Docker."""

import pytest

from cni_bridge_spec import JsonObject
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.lists.guard import (
    EgressOptions,
    OtherNetworks,
    find_shared_bridge,
    is_guarded,
    lone_guard,
    refuse_other_engine,
    refuse_shared_bridge,
    refuse_without_responder,
    status_list,
    with_guard,
    without_gateway,
)
from cnm_bridge.core.options.cni_options import parse_options

BRIDGE: JsonObject = {"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.66.0.0/24"}}
EGRESS: JsonObject = {"type": "egress", "allow": ["a.example"]}
ALLOW = ("b.example", "10.0.5.7:5432")
BEFORE, SINCE = EngineVersion(28, 0), EngineVersion(28, 1)


def network(*plugins: JsonObject) -> NetworkConfigurationList:
    """Return a list that may be used in two versions."""
    return NetworkConfigurationList.from_document(
        {"cniVersion": "1.0.0", "cniVersions": ["0.4.0", "1.0.0"], "name": "agents", "plugins": list(plugins)}
    )


def test_a_list_with_the_plugin() -> None:
    """It guards, and is used as it is; a list without it stays as it is."""
    assert with_guard(network(BRIDGE, EGRESS), (), audit=False) == network(BRIDGE, EGRESS)
    assert with_guard(network(BRIDGE), (), audit=False) == network(BRIDGE)
    assert is_guarded(network(BRIDGE, EGRESS))
    assert not is_guarded(network(BRIDGE))


def test_a_bridge_of_two_networks() -> None:
    """It is guarded as a whole, so that both of them are, or neither is."""
    plain, guarded, apart = network(BRIDGE), network(BRIDGE, EGRESS), network({**BRIDGE, "bridge": "own0"})
    assert (find_shared_bridge(plain, guarded), find_shared_bridge(guarded, plain)) == ("cni0", "cni0")
    assert {find_shared_bridge(guarded, one) for one in (guarded, apart, network({"type": "ptp"}))} == {None}
    with pytest.raises(Refused, match=r"cni0 is also that of the Docker network blue, which is guarded.*of this netw"):
        refuse_shared_bridge("cni0", "blue", is_other_guarded=True)


def test_a_network_with_entries() -> None:
    """The plugin is appended, and takes further entries of containers."""
    *others, guard = with_guard(network(BRIDGE, {"type": "portmap"}), ALLOW, audit=False).plugins
    assert [plugin.type for plugin in others] == ["bridge", "portmap"]
    assert guard.document == {"type": "egress", "allow": [*ALLOW], "capabilities": {"egress": True}}
    audited = with_guard(network(BRIDGE), (), audit=True).plugins[-1]
    assert audited.document == {"type": "egress", "allow": [], "audit": True, "capabilities": {"egress": True}}


@pytest.mark.parametrize(("allow", "option"), [(ALLOW, "cni.egress.allow"), ((), "cni.egress.audit")])
def test_two_allow_lists(allow: tuple[str, ...], option: str) -> None:
    """A network has one: in its list, or in its options."""
    with pytest.raises(BadOption, match=f"{option}: CNI configuration agents has the plugin egress already"):
        with_guard(network(BRIDGE, EGRESS), allow, audit=True)


@pytest.mark.parametrize(
    ("plugins", "error"),
    [
        ([BRIDGE, EGRESS, {"type": "portmap"}], "must be the last one"),
        ([BRIDGE, EGRESS, EGRESS], "there can be only one"),
        ([EGRESS], "follows one that makes the link"),
        ([{"type": "macvlan"}, EGRESS], "the links of macvlan send past the rules of the host"),
        ([{"type": "ipvlan"}, EGRESS], "the links of ipvlan"),
        ([{"type": "host-device"}, EGRESS], "the links of host-device"),
        ([{**BRIDGE, "vlan": 7}, EGRESS], "remove vlan and vlanTrunk from the plugin bridge"),
    ],
)
def test_lists_that_cannot_be_guarded(plugins: list[JsonObject], error: str) -> None:
    """The error says why."""
    with pytest.raises(Refused, match=f"CNI configuration agents cannot be used: .*{error}"):
        with_guard(network(*plugins), (), audit=False)


def test_the_list_for_status() -> None:
    """Only the plugin, in the version in which STATUS exists."""
    asked = status_list(network(BRIDGE, EGRESS))
    assert (asked.cni_versions, [plugin.document for plugin in asked.plugins]) == (("1.1.0",), [EGRESS])


def test_a_network_whose_list_is_not_known() -> None:
    """Its plugin is the one that its list would get."""
    appended = with_guard(network(BRIDGE), ALLOW, audit=True)
    alone = lone_guard("0123456789ab", ALLOW, audit=True)
    assert [plugin.document for plugin in alone.plugins] == [appended.plugins[-1].document]
    assert status_list(alone) == alone


@pytest.mark.parametrize(
    ("plugins", "internal", "expected"),
    [
        ([BRIDGE], True, True),
        ([BRIDGE], False, False),
        ([BRIDGE, EGRESS], True, False),
        ([BRIDGE, EGRESS], False, False),
    ],
)
def test_the_default_route(plugins: list[JsonObject], expected: bool, internal: bool) -> None:
    """Only an internal network that is not guarded has none."""
    assert without_gateway(network(*plugins), internal=internal) is expected


def test_how_a_guarded_network_is_made() -> None:
    """Internal from 28.1 on, and not internal before. If the version is not known, containers decide."""
    refuse_other_engine(internal=True, version=SINCE)
    refuse_other_engine(internal=False, version=BEFORE)
    refuse_other_engine(internal=False, version=None)
    with pytest.raises(Refused, match=r"from Docker Engine 28.1 on.*Make it with --internal"):
        refuse_other_engine(internal=False, version=SINCE)
    with pytest.raises(Refused, match=r"Docker Engine 28.0 .*without --internal, and give .* --dns 169.254.53.53"):
        refuse_other_engine(internal=True, version=BEFORE)


def test_whom_the_resolver_asks() -> None:
    """On a network that is not internal, dockerd's resolver must ask the responder, on any engine."""
    refuse_without_responder(internal=True, name_servers=(), version=SINCE)
    refuse_without_responder(internal=False, name_servers=("192.0.2.1", "169.254.53.53"), version=BEFORE)
    with pytest.raises(Refused, match=r": give the container --dns 169.254.53.53 \(compose: dns: 169.254.53.53\)$"):
        refuse_without_responder(internal=False, name_servers=("192.0.2.1",), version=BEFORE)
    with pytest.raises(Refused, match="make the network again with --internal"):
        refuse_without_responder(internal=False, name_servers=(), version=SINCE)


@pytest.mark.parametrize(
    "text", ["a.example,[2001:db8::/64]:443", "a.example [2001:db8::/64]:443", " a.example,\n[2001:db8::/64]:443, "]
)
def test_entries(text: str) -> None:
    """They are separated by commas or spaces, and no entry has either."""
    options = parse_options({"cni.egress.allow": text})
    assert options.egress == EgressOptions(allow=("a.example", "[2001:db8::/64]:443"))
    assert options.egress.guards


def test_a_containers_own_entries() -> None:
    """They are in addition to the network's, and reach the plugin as a capability argument."""
    options = parse_options({"cni.egress.allow": "a.example"}, {"cni.egress.allow": "b.example c.example"})
    assert options.egress.allow == ("a.example",)
    assert options.capabilities == {"egress": {"allow": ["b.example", "c.example"]}}


def test_an_unguarded_network() -> None:
    """Nothing but entries and audit guards."""
    assert not parse_options({"cni.egress.audit": "false", "cni.egress.other-networks": "allow"}).egress.guards
    assert parse_options({"cni.egress.audit": "true"}).egress == EgressOptions(audit=True)
    assert parse_options({"cni.egress.net-admin": "allow"}).egress == EgressOptions(allows_net_admin=True)


@pytest.mark.parametrize("chosen", OtherNetworks)
def test_other_networks(chosen: OtherNetworks) -> None:
    """They are refused by default."""
    assert parse_options({"cni.egress.other-networks": chosen.value}).egress.other_networks is chosen
    assert parse_options({}).egress.other_networks is OtherNetworks.REFUSE


@pytest.mark.parametrize(
    ("network", "endpoint", "error"),
    [
        ({"cni.egress.allow": " ,"}, {}, "cni.egress.allow: is empty"),
        ({}, {"cni.egress.allow": ""}, "cni.egress.allow: is empty"),
        ({"cni.egress.audit": "yes"}, {}, "cni.egress.audit: 'yes' is neither true nor false"),
        ({"cni.egress.other-networks": "no"}, {}, "'no' is neither refuse nor allow nor disconnect"),
        ({}, {"cni.egress.audit": "true"}, "is an option of networks, not of containers"),
        ({}, {"cni.egress.other-networks": "allow"}, "is an option of networks, not of containers"),
        ({}, {"cni.egress.net-admin": "allow"}, "is an option of networks, not of containers"),
        ({}, {"cni.capability.egress": "{}"}, "use cni.egress.allow"),
    ],
)
def test_what_is_refused(network: dict[str, str], endpoint: dict[str, str], error: str) -> None:
    """The error names the option. A container decides about none of its limits."""
    with pytest.raises(BadOption, match=error):
        parse_options(network, endpoint)
