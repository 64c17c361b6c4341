# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a key has is reserved by the list's IPAM plugin alone, and given to containers by `static`."""

from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import HoldId, HoldPhase, HoldRecord, NetworkId, RequestedInterface
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts import EngineRelease
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.attach_choice import AttachRequest
from cnm_bridge.core.planning.hold import (
    is_current,
    plan_hold,
    refuse_changed_hold,
    refuse_unheld,
    with_hold,
)
from cnm_bridge.core.planning.options.cni_options import Options, parse_options
from cnm_bridge.core.planning.plan import Plan, PlanRequest, plan_attachment
from cnm_bridge.core.settings import AttachOption

SUBNET: JsonObject = {"type": "host-local", "subnet": "10.1.2.0/24"}
MAC = "02:00:00:00:00:09"
RESULT: JsonObject = {
    "cniVersion": "1.0.0",
    "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}],
    "routes": [{"dst": "0.0.0.0/0"}],
    "dns": {},
}


def network(ipam: JsonObject, kind: str = "bridge") -> NetworkConfigurationList:
    """Return a list of one plugin with an IPAM section, and `firewall`."""
    plugins: list[JsonObject] = [{"type": kind, "ipam": ipam}, {"type": "firewall"}]
    return NetworkConfigurationList.from_document({"cniVersion": "1.0.0", "name": "blue", "plugins": [*plugins]})


def plan(ipam: JsonObject = SUBNET, *, mac: str | None = None, **options: str) -> Plan:
    """Return the plan of a container with a key."""
    given = {f"cni.{name.replace('_', '-')}": value for name, value in {"sticky": "web", **options}.items()}
    return plan_attachment(
        PlanRequest(
            network=network(ipam),
            options=parse_options({}, given),
            requested=RequestedInterface(mac=mac),
            pools=(),
            internal=False,
        )
    )


def hold(made_by: Plan) -> HoldRecord:
    """Return what the key has."""
    return HoldRecord(
        id=HoldId("1" * 64),
        network_id=NetworkId("n" * 64),
        section="blue",
        key="web",
        phase=HoldPhase.HELD,
        addresses=("10.1.2.3/24",),
        mac=MAC,
        reservation=replace(plan_hold(made_by, "/run/netns"), result=RESULT),
        keep_s=None,
        holder=None,
        change=None,
        expires_at=None,
        created_at=1,
    )


def test_the_ipam_plugin_runs_alone() -> None:
    """It receives what it would for a container, also the addresses of `cni.ips`."""
    reservation = plan_hold(plan(ips="10.1.2.3"), "/run/netns")
    assert reservation.configuration == {
        "cniVersion": "1.0.0",
        "name": "blue",
        "plugins": [{"type": "host-local", "ipam": SUBNET, "args": {"cni": {"ips": ["10.1.2.3"]}}}],
    }
    again = plan_hold(plan(), "/run/netns", ["10.1.2.3/24"])
    assert again.configuration == reservation.configuration


def test_containers_receive_what_the_key_has() -> None:
    """The first plugin has `static` with the result, the MAC is the key's unless the user chose another one."""
    wanted = plan(ips="10.1.2.3")
    given = with_hold(wanted, hold(wanted))
    first = given.configuration.plugins[0].document
    assert first["ipam"] == {
        "type": "static",
        "addresses": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1"}],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    assert first["args"] == {"cni": {}}
    assert [plugin.type for plugin in given.configuration.plugins] == ["bridge", "firewall"]
    assert (given.own_mac, given.capability_args["mac"]) == (MAC, MAC)
    assert [str(address) for address in given.addresses] == ["10.1.2.3"]
    assert [str(address) for address in given.fixed_addresses] == ["10.1.2.3"]
    chosen = with_hold(plan(mac="02:00:00:00:00:11"), hold(wanted))
    assert (chosen.own_mac, chosen.capability_args["mac"]) == (None, "02:00:00:00:00:11")


@pytest.mark.parametrize(
    ("ipam", "options", "text"),
    [
        (
            SUBNET,
            {"ips": "10.1.2.9"},
            "cni.ips asks for 10.1.2.9; leave out cni.ips, or `cni-bridge release --sticky web`",
        ),
        ({**SUBNET, "rangeStart": "10.1.2.100"}, {}, "no longer have 10.1.2.3"),
        ({"type": "whereabouts", "range": "10.1.2.0/24"}, {}, "another IPAM section since"),
    ],
)
def test_what_no_longer_suits_is_refused(ipam: JsonObject, options: dict[str, str], text: str) -> None:
    """The error says what the key has, and which command releases it."""
    with pytest.raises(Refused, match=text.replace(".", r"\.")) as caught:
        refuse_changed_hold(plan(ipam, **options), hold(plan()))
    assert "key web has 10.1.2.3/24" in str(caught.value)
    assert "cni-bridge release --sticky web" in str(caught.value)


def test_a_section_that_still_has_the_address_is_accepted() -> None:
    """It is not the one of the reservation, so the address is reserved again."""
    wider = plan({**SUBNET, "routes": [{"dst": "0.0.0.0/0"}]})
    refuse_changed_hold(wider, hold(plan()))
    assert not is_current(wider, hold(plan()))
    assert is_current(plan(), hold(plan()))


@pytest.mark.parametrize(
    ("ipam", "has_pool", "text"),
    [
        (SUBNET, True, "Docker's IPAM chooses the addresses of this network; give --ip"),
        ({"type": "dhcp"}, False, "cni.dhcp.client-id=KEY"),
        ({"type": "static"}, False, "IPAM plugin static reserves no address"),
        ({"type": "acme"}, False, "IPAM plugin acme is not known to work without a link"),
    ],
)
def test_what_cannot_be_held(ipam: JsonObject, has_pool: bool, text: str) -> None:
    """The error says why, and what to do instead."""
    request = AttachRequest(
        network=network(ipam),
        options=Options(sticky="web"),
        default=AttachOption.AUTO,
        release=EngineRelease(28, 5),
        has_pool=has_pool,
    )
    with pytest.raises(Refused, match=text):
        refuse_unheld(request, ("1.0.0",))
