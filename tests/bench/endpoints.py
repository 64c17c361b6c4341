# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Many endpoints: their records in a store, and their links in sandboxes."""

import asyncio
import subprocess
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import (
    AttachmentId,
    AttachmentRecord,
    EndpointId,
    EndpointRecord,
    NetworkId,
    NetworkRecord,
    Phase,
    RequestedInterface,
)
from cni_bridge_state.codec import render_value
from cni_bridge_state.store import Store
from cnm_bridge.system.kernel import Kernel
from tests.kernel.engine import FakeEngine

NETWORKS: Final = 10
IN_SANDBOX: Final = 10
"""How many endpoints share a sandbox if there are more than a thousand: making so many namespaces takes minutes."""
CONFIGURATION: Final[JsonObject] = {
    "cniVersion": "1.0.0",
    "name": "lan",
    "plugins": [
        {
            "type": "idle",
            "ipam": {"type": "none", "ranges": [[{"subnet": "10.0.0.0/8", "gateway": "10.0.0.1"}]]},
            "args": {"about": "as long as a list with four plugins is. " * 15},
        }
    ],
}
SANDBOXES: Final = Path("/run/docker/netns")


def id_of(number: int) -> str:
    """Return the ID of an endpoint; the name of its link in the host namespace has the first eleven digits."""
    return f"{number:011x}{0:053x}"


def ipv4_of(number: int) -> str:
    """Return the IPv4 address of an endpoint."""
    return f"10.{number + 2 >> 16}.{number + 2 >> 8 & 255}.{number + 2 & 255}"


def ipv6_of(number: int) -> str:
    """Return the IPv6 address of an endpoint."""
    return f"fd00::{number + 2:x}"


def make_record(number: int, run_dir: Path, boot_id: str, sandbox: Path) -> EndpointRecord:
    """Make the record of a joined endpoint with addresses of both families."""
    endpoint_id = id_of(number)
    address, address_ipv6 = ipv4_of(number), ipv6_of(number)
    mac = "02:" + ":".join(f"{number:010x}"[i : i + 2] for i in range(0, 10, 2))
    staging = str(run_dir / "netns" / endpoint_id)
    of_address: JsonObject = {"peer": None, "broadcast": None, "scope": 0, "flags": 128, "metric": None, "label": None}
    of_route: JsonObject = {
        "gateway": None,
        "table": 254,
        "type": 1,
        "scope": 253,
        "protocol": 2,
        "source": None,
        "onlink": False,
        "mtu": None,
        "advmss": None,
    }
    return EndpointRecord(
        id=EndpointId(endpoint_id),
        network_id=NetworkId(f"{number % NETWORKS:064x}"),
        phase=Phase.JOINED,
        boot_id=boot_id,
        internal=False,
        requested=RequestedInterface(),
        attachment=AttachmentRecord(
            id=AttachmentId(endpoint_id),
            ifname="eth0",
            netns=staging,
            configuration=CONFIGURATION,
            cni_version="1.0.0",
            args=(("IgnoreUnknown", "1"),),
            capability_args={},
        ),
        added_plugins=1,
        result={
            "cniVersion": "1.0.0",
            "interfaces": [
                {"name": "lan0"},
                {"name": "veth", "mac": mac},
                {"name": "eth0", "mac": mac, "sandbox": "/x"},
            ],
            "ips": [{"address": f"{address}/8", "interface": 2}, {"address": f"{address_ipv6}/64", "interface": 2}],
            "dns": {},
        },
        snapshot={
            "link": {"name": "eth0", "kind": "veth", "mac": mac, "mtu": 1500, "noarp": False},
            "addresses": [{**of_address, "address": f"{address}/8"}, {**of_address, "address": f"{address_ipv6}/64"}],
            "routes": [
                {**of_route, "destination": "10.0.0.0/8", "metric": 0, "source": address},
                {**of_route, "destination": "fd00::/64", "metric": 256, "scope": 0},
                {**of_route, "destination": "fe80::/64", "metric": 256, "scope": 0},
            ],
            "rules": [],
            "neighbours": [],
            "sysctls": [{"name": "net/ipv4/conf/eth0/arp_filter", "value": "1"}],
        },
        addresses=(address, address_ipv6),
        sandbox_key=str(sandbox),
    )


def sandbox_of(number: int, count: int) -> Path:
    """Return the sandbox of an endpoint's link."""
    return SANDBOXES / str(number // IN_SANDBOX if count > 1000 else number)


async def fill(directory: Path, run_dir: Path, engine: FakeEngine, count: int, boot_id: str) -> None:
    """Store networks and endpoints."""
    store = Store.open(directory)
    await store.put_engine_identity(engine.identity)
    entries: dict[str, bytes] = {}
    for number in range(NETWORKS):
        record = NetworkRecord(
            id=NetworkId(f"{number:064x}"),
            configuration="lan",
            name="net",
            internal=False,
            options={"cni.network": "lan"},
        )
        entries[f"network/{record.id}"] = render_value(record)
    for number in range(count):
        joined = make_record(number, run_dir, boot_id, sandbox_of(number, count))
        entries[f"endpoint/{joined.id}"] = render_value(joined)
    store._db.write_now(entries)  # thousands of synced writes would take long
    store.close()
    Store.open(directory).close()  # LevelDB sorts the large write now, as it would have done between small ones


async def make_sandboxes(count: int) -> None:
    """Make sandboxes with a link for each endpoint, under the endpoint's alternative name."""
    kernel = Kernel(reply_limit_s=30)
    batches: dict[Path, list[str]] = {}
    for number in range(count):
        lines = batches.setdefault(sandbox_of(number, count), [])
        index = len(lines) // 5
        lines += [
            f"link add eth{index} type veth peer name peer{index}",
            f"link property add dev eth{index} altname cni-bridge-{id_of(number)}",
            f"addr add {ipv4_of(number)}/8 dev eth{index}",
            f"addr add {ipv6_of(number)}/64 dev eth{index} nodad",
            f"link set eth{index} up",
        ]
    for path, lines in batches.items():
        await kernel.create_staging(path)
        batch = "\n".join([*lines, ""]).encode()
        await asyncio.to_thread(
            subprocess.run, ["nsenter", f"--net={path}", "ip", "-batch", "-"], input=batch, check=True
        )
