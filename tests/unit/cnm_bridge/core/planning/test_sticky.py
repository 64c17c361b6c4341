# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins are asked for what the last container with a key had, unless something else is asked for."""

from ipaddress import ip_address
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId, MemoryId, MemoryRecord, NetworkId, RequestedInterface, StickyRecord
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.options.cni_options import parse_options
from cnm_bridge.core.planning.addressing import is_asking, without_request
from cnm_bridge.core.planning.plan import Plan, PlanRequest, plan_attachment, with_attachment
from cnm_bridge.core.planning.records import planned_record
from cnm_bridge.core.wire import CreateEndpoint
from tests.records import list_of

MAC = "02:00:00:00:00:09"
LAST = MemoryRecord(id=MemoryId("blue/web"), addresses=("10.1.2.3",), mac=MAC, used_at=1)
IPAM: JsonObject = {"type": "host-local", "subnet": "10.1.2.0/24"}
BRIDGE: JsonObject = {"type": "bridge", "ipam": IPAM}
DECLARING: JsonObject = {**BRIDGE, "capabilities": {"ips": True, "mac": True}}
UNKNOWN_IPAM: JsonObject = {"type": "bridge", "ipam": {"type": "acme"}}


def plan(*plugins: JsonObject, memory: MemoryRecord | None = LAST, mac: str | None = None, **options: str) -> Plan:
    """Return the plan of a container with a key."""
    given = {f"cni.{name.replace('_', '.')}": value for name, value in {"sticky": "web", **options}.items()}
    return plan_attachment(
        PlanRequest(
            network=list_of(*(plugins or (BRIDGE,))),
            options=parse_options({}, given),
            requested=RequestedInterface(mac=mac),
            pools=(),
            internal=False,
            memory=memory,
        )
    )


@pytest.mark.parametrize(
    ("plugin", "args", "capability_args"),
    [
        (BRIDGE, {"MAC": MAC}, {}),
        (DECLARING, {}, {"ips": ["10.1.2.3"], "mac": MAC}),
        (UNKNOWN_IPAM, {"MAC": MAC, "IP": "10.1.2.3"}, {}),
    ],
)
def test_what_the_last_container_had(plugin: JsonObject, args: dict[str, str], capability_args: JsonObject) -> None:
    """It reaches the plugins as `cni.ips` and a MAC do; the container may get others."""
    made = plan(plugin)
    assert {key: value for key, value in made.args if key != "IgnoreUnknown"} == args
    assert made.capability_args == capability_args
    assert (made.addresses, made.own_mac) == ((), MAC)
    assert made.fixed_addresses == {ip_address("10.1.2.3")}
    assert made.sticky == StickyRecord(key="web", addresses=("10.1.2.3",), mac=MAC)
    assert is_asking(made.sticky)


@pytest.mark.parametrize("keeps_mac", [True, False])
@pytest.mark.parametrize(
    "plugin",
    [BRIDGE, {**BRIDGE, "capabilities": {"ips": True, "mac": True}}, {"type": "bridge", "ipam": {"type": "acme"}}],
)
def test_another_container_has_it(plugin: JsonObject, *, keeps_mac: bool) -> None:
    """The next attempt is that of a container without a memory of the address, and perhaps of the MAC."""
    made = plan(plugin)
    request = CreateEndpoint(
        network_id=NetworkId("a" * 64), endpoint_id=EndpointId("b" * 64), requested=RequestedInterface(), options={}
    )
    record = planned_record(request, made, None, run_dir=Path("/run"), boot_id="b", now_s=1)
    without = without_request(record, keeps_mac=keeps_mac)
    again = with_attachment(made, without.attachment)
    memory = MemoryRecord(id=LAST.id, addresses=(), mac=MAC, used_at=1)
    other = plan(plugin, memory=memory if keeps_mac else None)
    assert again.capability_args == other.capability_args
    assert {*again.args} - {("IgnoreUnknown", "1")} == {*other.args} - {("IgnoreUnknown", "1")}
    assert again.own_mac == other.own_mac
    assert again.fixed_addresses == frozenset()
    assert again.sticky == StickyRecord(key="web", addresses=("10.1.2.3",), mac=MAC if keeps_mac else None)


def test_given_values_take_precedence() -> None:
    """Those of the container, and the MAC that the list gives."""
    made = plan(ips="10.1.2.9")
    assert (made.fixed_addresses, made.own_mac) == (frozenset({ip_address("10.1.2.9")}), MAC)
    assert not is_asking(made.sticky)
    assert not is_asking(plan(args_IP="10.1.2.9").sticky)
    assert plan(mac="02:00:00:00:00:01").sticky == StickyRecord(key="web", addresses=("10.1.2.3",))
    listed: JsonObject = {**BRIDGE, "args": {"cni": {"mac": "02:00:00:00:00:01"}}}
    assert plan(listed).own_mac == "02:00:00:00:00:01"


def test_links_without_a_mac_of_their_own() -> None:
    """No MAC is asked for."""
    assert plan({"type": "ipvlan", "master": "eth0", "ipam": IPAM}).own_mac is None


def test_the_first_container_asks_for_nothing() -> None:
    """Its plan is that of a container without a key."""
    made = plan(memory=None)
    assert (made.args, made.capability_args, made.own_mac) == ((), {}, None)
    assert made.sticky == StickyRecord(key="web")


@pytest.mark.parametrize(
    ("plugin", "reason"),
    [
        ({"type": "bridge"}, "it has no IPAM plugin"),
        ({"type": "bridge", "ipam": {"type": "dhcp"}}, "only its DHCP server"),
        ({"type": "bridge", "ipam": {"type": "static"}}, "IPAM plugin static gives"),
        ({"type": "bridge", "ipam": {"type": "whereabouts"}}, "plugin whereabouts does not reserve"),
        ({"type": "weave-net"}, "plugin weave-net does not reserve"),
        ({"type": "weave-net", "ipam": {"type": "weave-ipam"}}, "plugin weave-ipam does not reserve"),
    ],
)
def test_plugins_that_take_no_request(plugin: JsonObject, reason: str) -> None:
    """They are refused at the first container already."""
    with pytest.raises(Refused, match=rf"cni\.sticky is not possible for CNI configuration blue: {reason}"):
        plan(plugin, memory=None)
