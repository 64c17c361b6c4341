# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The typed fields of an endpoint's record, and how it is found by the name of its link."""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, Phase, ReservationInput
from cnm_bridge.core.endpoint import Endpoint, attachment_of, attachments_of_others, pin_path, staging_path
from tests.records import endpoint
from tests.unit.cnm_bridge.core.snapshots import LINK, snapshot

CONFIGURATION: JsonObject = {"cniVersion": "0.4.0", "name": "lan", "plugins": [{"type": "bridge"}]}

ID = AttachmentId("0123456789abcdef")
MADE = endpoint("e" * 64, Phase.PENDING, args=(("IgnoreUnknown", "1"),))
OF_CNI = replace(MADE.attachment, id=ID, netns=f"/run/cni-bridge/netns/{ID}", configuration=CONFIGURATION)
RECORD = replace(MADE, attachment=replace(OF_CNI, cni_version="0.3.1"))


def test_names_come_from_the_attachment() -> None:
    """CNI, links and the staging namespace use the attachment's ID, never Docker's endpoint ID."""
    endpoint = Endpoint(RECORD)
    assert endpoint.attachment.container_id == "0123456789abcdef"
    assert (endpoint.host_link, endpoint.altname) == ("cnib0123456789a", "cni-bridge-0123456789abcdef")
    assert endpoint.netns == Path("/run/cni-bridge/netns/0123456789abcdef")
    assert endpoint.sandbox is None
    assert Endpoint(replace(RECORD, sandbox_key="/run/docker/netns/1")).sandbox == Path("/run/docker/netns/1")


def test_what_the_plugins_of_a_reservation_received() -> None:
    """The IPAM plugin received requests for addresses, and no identity; the others the other way round."""
    netns, own, identified = Path("/run/netns/1"), (("IP", "10.1.0.2"),), (("IP", "10.1.0.2"), ("NAME", "web"))
    plugin: JsonObject = {"type": "bridge", "ipam": {"type": "host-local"}, "args": {"cni": {"labels": []}}}
    reserved = replace(
        RECORD.attachment,
        configuration={**CONFIGURATION, "plugins": [plugin]},
        reservation={"cniVersion": "0.3.1", "ips": [{"version": "4", "address": "10.1.0.2/24"}]},
        args=identified,
    )
    ipam: JsonObject = {"type": "host-local", "ipam": {"type": "host-local"}}
    known = replace(reserved, reservation_input=ReservationInput(plugin=ipam, args=own))
    endpoint = Endpoint(replace(RECORD, attachment=known))
    assert [endpoint.attachment_of(index, netns=netns).args for index in (0, 1)] == [own, (("NAME", "web"),)]
    paths = [endpoint.attachment_of(index, netns=netns).netns for index in (0, 1)]
    assert paths == [str(staging_path(Path("/run/cni-bridge"), reserved.id)), str(netns)]
    assert endpoint.network.plugins[0].document == ipam
    stored_before = Endpoint(replace(RECORD, attachment=reserved))
    assert stored_before.attachment_of(0, netns=netns).args == identified
    assert stored_before.network.plugins[0].document == {**plugin, "type": "host-local"}
    assert Endpoint(RECORD).attachment_of(0, netns=netns) == Endpoint(RECORD).attachment_in(netns)


@pytest.mark.parametrize(
    ("plugin", "kind", "is_device"),
    [("bridge", "veth", False), ("macvlan", "macvlan", False), ("host-device", "veth", True), ("sriov", None, True)],
)
def test_devices_of_the_host_are_recognised(plugin: str, kind: str | None, is_device: bool) -> None:
    """Plugins return them instead of deleting them: links that are not virtual, and any link of `host-device`."""
    record = endpoint("88" * 32, plugins=[{"type": plugin}])
    made = snapshot(link=replace(LINK, kind=kind)).to_json()
    assert Endpoint(replace(record, snapshot=made)).has_device is is_device
    assert Endpoint(record).has_device is (plugin == "host-device")  # without a snapshot the link is unknown


@pytest.mark.parametrize(
    ("plugins", "name"),
    [
        ([{"type": "host-device", "device": "vlan10"}], "vlan10"),
        ([{"type": "host-device", "pciBusID": "0000:00:1f.6"}, {"type": "host-device", "device": "vlan10"}], "vlan10"),
        ([{"type": "host-device", "device": ""}], None),
        ([{"type": "host-device", "device": 10}], None),
        ([{"type": "bridge", "device": "vlan10"}], None),
    ],
)
def test_the_name_of_a_device(plugins: list[JsonObject], name: str | None) -> None:
    """It is that of `host-device` alone. A list that the plugin refuses has an endpoint to tear down, too."""
    assert Endpoint(endpoint("88" * 32, plugins=plugins)).device == name


ATTACHMENT = AttachmentId("0123456789abcdef" * 4)


@pytest.mark.parametrize(
    "name",
    [
        "eth0",
        ATTACHMENT,
        "cni-bridge-",
        "cni-bridge-uplink",
        f"cni-bridge-{ATTACHMENT}0",
        f"cni-bridge-{ATTACHMENT}\n",
        f"cni-bridge-../{ATTACHMENT}",
        f"xcni-bridge-{ATTACHMENT}",
        f"cni-bridge-{ATTACHMENT.upper()}",
    ],
)
def test_other_names_belong_to_no_attachment(name: str) -> None:
    """An operator may use such names for links."""
    assert attachment_of(name) is None


def test_the_attachments_of_another_instance() -> None:
    """They are known by the mounts below its run directory; our own, and Docker's sandboxes, are not among them."""
    ours, theirs = Path("/run/cni-bridge"), Path("/run/cni-bridge-blue")
    second = AttachmentId("f" * 64)
    mounted = [
        staging_path(theirs, ATTACHMENT),
        pin_path(theirs, second),
        staging_path(ours, AttachmentId("a" * 64)),
        Path("/run/docker/netns/0123456789ab"),
        Path("/run/netns/cni-1234"),
    ]
    assert attachments_of_others(mounted, ours) == {ATTACHMENT, second}


def test_a_snapshot_is_read_once() -> None:
    """Later records of the same endpoint have the same document; another one is read."""
    joined = replace(RECORD, snapshot=snapshot().to_json())
    parsed = Endpoint(joined).snapshot
    assert parsed == snapshot()
    assert Endpoint(replace(joined, phase=Phase.DELETING)).snapshot is parsed
    other = snapshot(link=replace(LINK, mtu=9000))
    assert Endpoint(replace(joined, snapshot=other.to_json())).snapshot == other
