# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The IPAM plugin `cni-ipam-etcd` with a real etcd of one member; tests/etcd has those with three.

Each test runs it both ways: as a process, and in the process of its runtime.
"""

import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_object, get_objects, get_str, render_json
from cni_invoker import Result
from cni_invoker.errors import ErrorCode, GcFailed
from cni_ipam_etcd.etcd import delete, put
from cni_ipam_etcd.reservations import FULL, TAKEN
from tests.etcd.cluster import Cluster, cluster
from tests.etcd.node import PLUGIN, Node, failing, reading, writing

MEMBER: Final = "127.0.0.11"
NUMBERS: Final = itertools.count()


@pytest.fixture(name="etcd", scope="module")
def start_etcd(private_namespaces: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An etcd for all tests."""
    assert private_namespaces
    with cluster(tmp_path_factory.mktemp("etcd"), [MEMBER]) as made:
        yield made


@pytest.fixture(name="node", params=["executed", "in_process"])
def make_node(etcd: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Node:
    """A host, with a network that no other test has."""
    in_process = request.param == "in_process"
    return Node(tmp_path, etcd.endpoints, "one", f"lan{next(NUMBERS)}", in_process=in_process)


def test_a_section_of_host_local(node: Node, tmp_path: Path) -> None:
    """With another type and etcd it gives the same result: addresses, gateways, routes and name servers."""
    (tmp_path / "resolv.conf").write_text("nameserver 192.0.2.1\nsearch lan.example example\noptions ndots:2\n")
    four: JsonObject = {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.7", "rangeEnd": "10.1.0.7"}
    six: JsonObject = {
        "subnet": "fd00:1::/64",
        "rangeStart": "fd00:1::7",
        "rangeEnd": "fd00:1::7",
        "gateway": "fd00:1::f",
    }
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "192.0.2.0/24", "gw": "10.1.0.9"}]
    node.section = {
        **four,
        "ranges": [[six]],
        "routes": routes,
        "resolvConf": str(tmp_path / "resolv.conf"),
        "dataDir": str(tmp_path / "data"),
    }
    expected = node.add("c1", plugin="host-local").document
    found = node.add("c1").document
    assert [get_str(ip, "address") for ip in get_objects(found, "ips")] == ["10.1.0.7/24", "fd00:1::7/64"]
    assert {**found, "cniVersion": "", "interfaces": []} == {**expected, "cniVersion": "", "interfaces": []}


def test_the_life_of_an_attachment(node: Node) -> None:
    """ADD is not repeatable, CHECK sees what is lost, and DEL may come any number of times."""
    node.delete("c1")
    result = node.add("c1")
    with failing(ErrorCode.INTERNAL, "eth0 of c1 on node one has addresses on network lan.* already; DEL it first"):
        node.add("c1")
    node.check("c1", result)
    address = str(result.ips[0].address.ip)
    key = f"/cni-ipam-etcd/addresses/{node.network}/4/" + ".".join(f"{int(part):03}" for part in address.split("."))
    writing(node, put(key, b"not ours"))
    with failing(ErrorCode.INTERNAL, f"eth0 of c1 has lost the reservation of {address}"):
        node.check("c1", result)
    for _ in range(2):
        node.delete("c1")
    with failing(ErrorCode.UNKNOWN_CONTAINER, "eth0 of c1 has no reservation"):
        node.check("c1", result)
    with failing(TAKEN, f"{address} is assigned to another program, which has written {key}"):
        node.add("c2", ips=[address])
    writing(node, delete(key))
    assert node.addresses("c2", ips=[address]) == [address]


def test_a_full_range(node: Node) -> None:
    """Every address is assigned once; then ADD and STATUS say so, until one is released on another node."""
    node.section = {**node.section, "exclude": ["10.1.0.104/30"]}
    other = node.other("two")
    found = [(node, other)[number % 2].addresses(f"c{number}")[0] for number in range(6)]
    assert sorted(found) == [f"10.1.0.{host}" for host in (100, 101, 102, 103, 108, 109)]
    with failing(FULL, r"all 6 addresses of 10\.1\.0\.100-10\.1\.0\.109 on network lan.* are assigned"):
        node.add("c6")
    with failing(ErrorCode.NOT_AVAILABLE, "all 6 addresses"):
        node.status()
    other.delete("c3")
    node.status()
    assert node.addresses("c6") == [found[3]]


def test_all_or_none(node: Node) -> None:
    """If a second set has no address, none of the first is reserved."""
    six: JsonObject = {"subnet": "fd00:1::/64", "rangeStart": "fd00:1::7", "rangeEnd": "fd00:1::7"}
    node.section = {"ranges": [[{"subnet": "10.1.0.0/24"}], [six]]}
    node.add("c1")
    with failing(FULL, "all 1 addresses of fd00:1::7-fd00:1::7"):
        node.add("c2")
    assert node.command("list").count(f"{node.network} ") == 2


def test_garbage_of_this_node_only(node: Node) -> None:
    """GC releases what is not valid; it knows nothing of the containers of other nodes."""
    node.add("c1")
    node.add("c2")
    other = node.other("two")
    other.add("c3")
    node.gc("c2")
    listed = node.command("list", "--json")
    found = {
        (one["node"], one["containerId"])
        for one in map(json.loads, listed.splitlines())
        if one["network"] == node.network
    }
    assert found == {("one", "c2"), ("two", "c3")}


def test_another_host_of_the_same_name(node: Node) -> None:
    """It gets no address, and its GC releases nothing, because it does not know the containers of the first."""
    node.add("c1")
    owner = f"/cni-ipam-etcd/owners/{node.etcd['node']}"
    mine = reading(node, owner)
    writing(node, put(owner, b"another"))
    for call in (lambda: node.add("c2"), node.status):
        with failing(ErrorCode.INVALID_CONFIGURATION, "node one is another host.*give each host a name of its own"):
            call()
    with pytest.raises(GcFailed, match="node one is another host"):
        node.gc("c2")
    writing(node, put(owner, mine))
    assert f"{node.network} " in node.command("list")
    node.delete("c1")


def test_a_released_name(node: Node) -> None:
    """When all of a node is released, a new host may have its name."""
    writing(node, put("/cni-ipam-etcd/owners/one", b"gone"))
    node.command("release", "--node", "one", "--force")
    node.add("c1")


def test_a_copied_store(node: Node) -> None:
    """A copy of a cluster, key by key, has other revisions; DEL and CHECK find what is theirs by its value."""
    result = node.add("c1")
    for key in keys_of(node, result):
        writing(node, put(key, reading(node, key)))
    node.check("c1", result)
    node.delete("c1")
    assert f"{node.network} " not in node.command("list")
    assert node.addresses("c2", ips=[str(result.ips[0].address.ip)])


def keys_of(node: Node, result: Result) -> list[str]:
    """Return the keys of an attachment of container c1."""
    (address,) = (str(ip.address.ip) for ip in result.ips)
    padded = ".".join(f"{int(part):03}" for part in address.split("."))
    network = f"/cni-ipam-etcd/addresses/{node.network}/4/{padded}"
    return [network, f"/cni-ipam-etcd/attachments/one/{node.network}/c1/eth0"]


def test_the_settings_in_a_file(node: Node, tmp_path: Path) -> None:
    """The section names it; without that it is a file in /etc/cni, which the error says."""
    (tmp_path / "etcd.json").write_bytes(render_json(node.etcd))
    plugin = node.configuration().plugins[0].document
    for etcd, expected in (
        ({"etcd": str(tmp_path / "etcd.json")}, "10.1.0.1"),
        ({}, "/etc/cni/cni-ipam-etcd.json: No such"),
    ):
        ipam = {**{key: value for key, value in get_object(plugin, "ipam").items() if key != "etcd"}, **etcd}
        environment = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/none"}
        done = subprocess.run(
            [PLUGIN],
            input=render_json({**plugin, "cniVersion": "1.0.0", "name": node.network, "ipam": ipam}),
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            check=False,
        )
        assert expected in done.stdout.decode()
