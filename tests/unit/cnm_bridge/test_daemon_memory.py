# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon keeps of an endpoint goes with its record."""

from dataclasses import replace
from pathlib import Path

from cnm_bridge.daemon import assemble
from cnm_bridge.settings import Settings
from state import AttachmentRecord, EndpointId, EndpointRecord, NetworkId, Phase, RequestedInterface, Store


def record(tmp_path: Path) -> EndpointRecord:
    """Give a joined endpoint with something to be settled."""
    return EndpointRecord(
        id=EndpointId("e" * 64),
        network_id=NetworkId("a" * 64),
        phase=Phase.JOINED,
        boot_id="0c1f",
        internal=False,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            ifname="eth0",
            netns=str(tmp_path / "e"),
            configuration={"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "bridge"}]},
            cni_version="1.0.0",
            args=(),
            capability_args={},
        ),
        snapshot={
            "link": {"name": "eth0", "kind": "veth", "mac": "02:00:00:00:00:01", "mtu": 1500, "noarp": False},
            "addresses": [],
            "routes": [],
            "rules": [],
            "neighbours": [],
            "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "1"}],
            "qdisc": None,
        },
        sandbox_key=str(tmp_path / "sandbox"),
    )


async def test_nothing_is_kept_of_an_endpoint_that_is_gone(tmp_path: Path) -> None:
    """Also where no Leave and no DeleteEndpoint came before its tear down, as after a crash of dockerd."""
    store = Store.open(tmp_path / "state")
    daemon = assemble(Settings(state_dir=tmp_path / "state", run_dir=tmp_path / "run"), store)
    joined = record(tmp_path)
    for phase in (Phase.PENDING, Phase.READY, Phase.JOINED):
        await store.put_endpoint(replace(joined, phase=phase))
    daemon.settling.join(joined)
    daemon.settling.become_gateway(joined.id)
    assert (daemon.settling._needy, daemon.settling._gateways) == ({joined.id}, {joined.id})
    await store.put_endpoint(replace(joined, phase=Phase.DELETING))
    await store.remove_endpoint(joined.id)
    assert (daemon.settling._needy, daemon.settling._gateways) == (set(), set())
    store.close()
