# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Records with a value in each field."""

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Interface, IPv6Network, ip_address
from pathlib import Path

import pytest

from cni_bridge_state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    IdentityRequest,
    NetworkId,
    NetworkRecord,
    Phase,
    PoolRecord,
    PortRequest,
    ProcessRecord,
    RequestedInterface,
    ReservationInput,
    StickyRecord,
)
from tests.unit.state.history import History, make_history


@pytest.fixture
def network() -> NetworkRecord:
    """A network whose list is set by `-o cni.network`."""
    return NetworkRecord(
        id=NetworkId("a" * 64),
        configuration="blue",
        name=None,
        internal=False,
        options={"cni.network": "blue"},
        pools=(
            PoolRecord(subnet=IPv4Network("10.1.0.0/16"), gateway=IPv4Address("10.1.0.1")),
            PoolRecord(subnet=IPv6Network("fd00::/64"), gateway=None, is_own=True),
        ),
    )


@pytest.fixture
def endpoint() -> EndpointRecord:
    """An endpoint with a value in every field but the documents that its plugins return."""
    return EndpointRecord(
        id=EndpointId("e" * 64),
        network_id=NetworkId("a" * 64),
        phase=Phase.PENDING,
        boot_id="0c1f",
        internal=False,
        requested=RequestedInterface(
            address=IPv4Interface("10.1.2.3/24"), address_ipv6=IPv6Interface("fd00::3/64"), mac="02:00:00:00:00:01"
        ),
        attachment=AttachmentRecord(
            id=AttachmentId("e" * 64),
            ifname="eth0",
            netns="/run/cni-bridge/netns/e",
            configuration={"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge", "x": [1, 2.5, None]}]},
            cni_version="1.0.0",
            args=(("IgnoreUnknown", "1"), ("K", "")),
            capability_args={"mac": "02:00:00:00:00:01"},
            reservation={"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.0.1"}]},
            reservation_input=ReservationInput(plugin={"type": "host-local"}, args=(("IgnoreUnknown", "1"),)),
            identity=IdentityRequest(labels=("app*",), is_required=True),
            mode_reason="cni.attach=move",
            sticky=StickyRecord(key="web", addresses=("10.1.2.3",), mac="02:00:00:00:00:01"),
        ),
        deleted=(2, 1),
        ifname_prefix="lan",
        sandbox_key="/var/run/docker/netns/5f1a",
        caller=ProcessRecord(pid=4711, started=815),
        first_process=ProcessRecord(pid=4712, started=816),
        lease_holder=ProcessRecord(pid=4713, started=817),
        created_at=1767225600,
        configuration_digest="9f86d081",
        requested_ports=(
            PortRequest(protocol=17, container_port=53, host_ip=ip_address("::1"), host_port=5353, host_port_end=5354),
        ),
    )


@pytest.fixture
async def history(tmp_path: Path, network: NetworkRecord, endpoint: EndpointRecord) -> History:
    """A state directory with a known history."""
    return await make_history(tmp_path / "original", network, endpoint)
