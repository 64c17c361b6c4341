# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The IPAM plugin `cni-ipam-etcd` with a real etcd: three members, some of which are killed, hang, or are cut off."""

import http.client
import http.server
import itertools
import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_object, get_objects, get_str, render_json
from cni_invoker import PluginFailed
from cni_invoker.errors import ErrorCode, GcFailed
from cni_ipam_etcd.etcd import NO_ANSWER, Etcd, delete, put
from cni_ipam_etcd.reservations import FULL, TAKEN
from cni_ipam_etcd.settings import Settings
from tests.certificates import certificates_script
from tests.kernel.etcd_cluster import Cluster, cluster
from tests.kernel.etcd_node import PLUGIN, TIMEOUT_S, Node

MEMBERS: Final = ("127.0.0.11", "127.0.0.12", "127.0.0.13")
NUMBERS: Final = itertools.count()
ELECTION_S: Final = 20.0
"""A timeout within which three members elect another leader, also on a busy machine."""
BUSY_S: Final = 5.0
"""What a busy machine adds to a limit."""


@pytest.fixture(name="etcd", scope="module")
def start_cluster(private_namespaces: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three members, all of them healthy whenever a test begins."""
    assert private_namespaces
    with cluster(tmp_path_factory.mktemp("etcd"), MEMBERS) as made:
        yield made


@pytest.fixture(name="node")
def make_node(etcd: Cluster, tmp_path: Path) -> Node:
    """A host, with a network that no other test has."""
    (tmp_path / "cni-ipam-etcd").symlink_to(PLUGIN)
    return Node(tmp_path, etcd.endpoints, "one", f"lan{next(NUMBERS)}")


@contextmanager
def failing(code: int, message: str) -> Iterator[None]:
    """The body fails with an error of the plugin, and not later than the deadline allows."""
    began = time.monotonic()
    with pytest.raises(PluginFailed, match=message) as caught:
        yield
    assert time.monotonic() - began < TIMEOUT_S + BUSY_S
    assert caught.value.code == code


def writing(node: Node, *operations: JsonObject) -> None:
    """Do as another program would."""
    etcd = Etcd(Settings.of_section({"etcd": node.etcd}))
    assert etcd.transact([], operations) is None
    etcd.close()


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


def test_requested_addresses(node: Node) -> None:
    """By the capability `ips`, `IP` in CNI_ARGS and `args`; another node's address is refused with its owner."""
    assert node.addresses("c1", ips=["10.1.0.105/24"]) == ["10.1.0.105"]
    assert node.addresses("c2", args="10.1.0.106") == ["10.1.0.106"]
    other = node.other("two")
    with failing(TAKEN, r"10\.1\.0\.105 is assigned to eth0 of container c1 on node one since 20"):
        other.add("c1", ips=["10.1.0.105"])
    for wanted in ("10.1.0.1", "10.1.0.99", "fd00::1"):
        with failing(ErrorCode.INVALID_CONFIGURATION, f"{wanted} is requested, but cannot be assigned"):
            other.add("c1", ips=[wanted])
    with failing(ErrorCode.INVALID_CONFIGURATION, "a requested address: 'x' does not appear"):
        other.add("c1", args="x")
    node.delete("c1")
    assert other.addresses("c1", ips=["10.1.0.105"]) == ["10.1.0.105"]


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


def test_two_nodes_with_fifty_at_once_each(node: Node) -> None:
    """A hundred plugins are started at once for a hundred addresses: each gets one, and no two the same."""
    node.etcd["timeout"] = 60
    node.section = {"ranges": [[{"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.101", "rangeEnd": "10.1.0.200"}]]}
    processes = []
    for name, number in itertools.product(("one", "two"), range(50)):
        configuration = node.other(name).configuration().plugins[0].document
        environment = {
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": f"c{number}",
            "CNI_IFNAME": "eth0",
            "CNI_NETNS": "/none",
        }
        process = subprocess.Popen(
            [PLUGIN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **environment}
        )
        assert process.stdin is not None
        process.stdin.write(render_json({**configuration, "cniVersion": "1.1.0", "name": node.network}))
        process.stdin.close()
        process.stdin = None
        processes.append(process)
    results = [json.loads(process.communicate()[0]) for process in processes]
    assert all("ips" in result for result in results), [result for result in results if "ips" not in result]
    assert {result["ips"][0]["address"] for result in results} == {f"10.1.0.{host}/24" for host in range(101, 201)}


def test_members_are_killed(etcd: Cluster, node: Node) -> None:
    """Without one of three all goes on; without two, nothing is assigned; what was reserved before is there after."""
    before = node.addresses("c1")
    etcd.kill(0)
    try:
        node.etcd["timeout"] = ELECTION_S
        second = node.addresses("c2")
        node.etcd["timeout"] = TIMEOUT_S
        etcd.kill(1)
        for call in (lambda: node.add("c3"), lambda: node.delete("c1")):
            with failing(NO_ANSWER, r"etcd does not answer within 3 s.*127\.0\.0\.11:2379: Connection refused"):
                call()
        with failing(ErrorCode.NOT_AVAILABLE, "etcd does not answer"):
            node.status()
    finally:
        for number in (0, 1):
            etcd.start(number)
        etcd.wait_healthy(0, 1, 2)
    node.delete("c3")  # as runtimes do after a failed ADD, which may have been carried out since
    found = [before, second, *(node.addresses(f"d{number}") for number in range(8))]
    assert len({address for addresses in found for address in addresses}) == 10


def test_members_that_hang(etcd: Cluster, node: Node) -> None:
    """One that accepts connections and does not answer is passed over; without a quorum there is an error in time."""
    node.etcd["timeout"] = ELECTION_S
    with etcd.silent(0):
        node.add("c1")
    node.etcd["timeout"] = TIMEOUT_S
    etcd.wait_healthy(0, 1, 2)
    with etcd.silent(0, 1), failing(NO_ANSWER, "no answer in .* s: it hangs, or its cluster has no quorum"):
        node.add("c2")
    etcd.wait_healthy(0, 1, 2)
    node.delete("c2")
    node.add("c3")


def test_a_member_that_cannot_be_reached(etcd: Cluster, node: Node) -> None:
    """The plugin uses the others; a node that reaches only that member gets no address."""
    alone = node.other("two")
    alone.etcd["endpoints"] = etcd.endpoints[2:]
    node.etcd |= {"endpoints": [etcd.endpoints[2], *etcd.endpoints[:2]], "timeout": ELECTION_S}
    with etcd.unreachable(2):
        node.add("c1")
        with failing(NO_ANSWER, "no connection: it cannot be reached"):
            alone.add("c1")
    etcd.wait_healthy(0, 1, 2)
    alone.add("c1")


class Lossy(http.server.BaseHTTPRequestHandler):
    """Passes requests on to a member; the answer to a transaction is lost."""

    def do_POST(self) -> None:
        """Pass a request on."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        member = http.client.HTTPConnection(MEMBERS[0], 2379)
        member.request("POST", self.path, content)
        answer = member.getresponse().read()
        member.close()
        if not self.path.endswith("/txn"):
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def test_an_answer_that_is_lost(node: Node) -> None:
    """The request is repeated at the next endpoint, and recognised as carried out: by ADD, and by DEL."""
    node.etcd["prefix"] = "/lost"
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Lossy) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            node.etcd["endpoints"] = [f"http://127.0.0.1:{server.server_port}", f"http://{MEMBERS[1]}:2379"]
            (address,) = node.addresses("c1")
            assert [line.split()[1] for line in node.command("list").splitlines()[1:]] == [address]
            node.delete("c1")
            assert len(node.command("list").splitlines()) == 1
        finally:
            server.shutdown()
            thread.join()


def test_another_program_s_keys(node: Node) -> None:
    """They are named, and stay."""
    node.etcd["prefix"] = "/shared"
    key = f"/shared/attachments/one/{node.network}/c1/eth0"
    writing(node, put(key, b"x"))
    with failing(ErrorCode.INTERNAL, "c1 on node one has addresses"):
        node.add("c1")
    with failing(ErrorCode.INVALID_CONFIGURATION, f"{key} in etcd is not a reservation.*prefix"):
        node.delete("c1")
    with pytest.raises(GcFailed, match=f"{key} in etcd is not a reservation"):
        node.gc("c2")
    assert f"{key} in etcd is not a reservation" in node.command("list")


def test_a_server_that_is_not_etcd(node: Node) -> None:
    """Its metrics' port answers, but not this."""
    node.etcd["endpoints"] = ["http://127.0.0.11:2381"]
    with failing(NO_ANSWER, "HTTP status 404: it has no JSON gateway /v3/kv/txn; is it etcd 3.4 or newer"):
        node.add("c1")


def test_the_operator_s_commands(node: Node) -> None:
    """The addresses of all nodes are listed; one node's are released if it is gone, or by force."""
    node.etcd["prefix"] = "/commands"
    mine = node.addresses("c1")
    gone = node.other("two")
    theirs = gone.addresses("c2")
    lines = [re.split("  +", line) for line in node.command("list").splitlines()]
    assert lines[0] == ["NETWORK", "ADDRESS", "NODE", "CONTAINER ID", "IFNAME", "SINCE"]
    assert sorted(line[1:5] for line in lines[1:]) == sorted(
        [[*mine, "one", "c1", "eth0"], [*theirs, "two", "c2", "eth0"]]
    )
    assert "two is alive: it was last seen at 20" in node.command("release", "--node", "two")
    assert "one is this node" in node.command("release", "--node", "one")
    writing(node, put("/commands/nodes/two", b"2026-01-01T00:00:00.000000+00:00"))
    assert re.search("^two +1 +2026-01-01T00:00:00Z$", node.command("nodes"), re.MULTILINE)
    gone.command("seen")
    assert "two is alive" in node.command("release", "--node", "two")
    assert "c9 has no reservation" in node.command("release", "--node", "two", "--container", "c9", "--force")
    assert f"released {theirs[0]} on network {node.network}" in node.command("release", "--node", "two", "--force")
    assert node.command("list", "--node", "two").splitlines() == ["NETWORK  ADDRESS  NODE  CONTAINER ID  IFNAME  SINCE"]
    gone.delete("c2")  # the node comes back after all


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


def test_certificates(private_namespaces: int, tmp_path: Path) -> None:
    """Both sides need one of the same authority; anything else is an error at once, and says what is wrong."""
    assert private_namespaces
    subprocess.run(["sh", "-ec", certificates_script("server", "node")], cwd=tmp_path, check=True, capture_output=True)
    options = ("--client-cert-auth", f"--trusted-ca-file={tmp_path}/ca.pem", f"--cert-file={tmp_path}/server.pem")
    (tmp_path / "cni-ipam-etcd").symlink_to(PLUGIN)
    with cluster(tmp_path, ["127.0.0.1"], [*options, f"--key-file={tmp_path}/server-key.pem"]) as etcd:
        node = Node(tmp_path, etcd.endpoints, "one", "lan")

        def use(ca: str, cert: str) -> None:
            files = {"caFile": f"{ca}.pem", "certFile": f"{cert}.pem", "keyFile": f"{cert}-key.pem"}
            node.etcd |= {key: str(tmp_path / file) for key, file in files.items()}

        use("ca", "node")
        node.add("c1")
        use("stranger", "node")
        with failing(NO_ANSWER, "its certificate is not accepted: unable to get local issuer certificate"):
            node.add("c2")
        use("ca", "intruder")
        with failing(NO_ANSWER, "ALERT|Connection reset|Broken pipe"):
            node.add("c2")
        use("ca", "none")
        with failing(ErrorCode.INVALID_CONFIGURATION, "TLS files that cannot be used: .*none.pem"):
            node.add("c2")
        node.etcd = {"endpoints": ["http://127.0.0.1:2379"], "timeout": TIMEOUT_S}
        with failing(NO_ANSWER, "is it etcd|closed connection"):
            node.add("c2")
