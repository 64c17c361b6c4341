# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The IPAM plugin `cni-ipam-etcd` with an etcd of three members, of which some are killed, hang, or are cut off."""

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
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import render_json
from cni_invoker.errors import ErrorCode, GcFailed
from cni_ipam_etcd.etcd import NO_ANSWER, put
from cni_ipam_etcd.reservations import TAKEN
from cni_plugin import CallError
from tests.certificates import certificates_script
from tests.etcd.cluster import Cluster, cluster
from tests.etcd.node import PLUGIN, TIMEOUT_S, Node, failing, writing
from tests.lab import wait_until

MEMBERS: Final = ("127.0.0.11", "127.0.0.12", "127.0.0.13")
ELECTION_S: Final = 20.0
"""A timeout within which three members elect another leader, also on a busy machine."""
LEADERLESS_S: Final = 7.0
"""After which a member without a leader gives up a transaction."""


@pytest.fixture(name="etcd")
def start_cluster(private_namespaces: int, tmp_path: Path) -> Iterator[Cluster]:
    """Three members of this test alone, all of them healthy."""
    assert private_namespaces
    with cluster(tmp_path, MEMBERS) as made:
        yield made


@pytest.fixture(name="node")
def make_node(etcd: Cluster, tmp_path: Path) -> Node:
    """A host."""
    return Node(tmp_path, etcd.endpoints, "one", "lan")


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


def test_a_member_without_a_leader(etcd: Cluster, node: Node) -> None:
    """It gives a transaction up after seven seconds: another member carries it out; alone, it is no answer of etcd."""
    alone = node.other("two")
    alone.etcd |= {"endpoints": etcd.endpoints[:1], "timeout": LEADERLESS_S + 2}
    node.etcd["timeout"] = LEADERLESS_S + ELECTION_S
    with etcd.cut_off(0):
        wait_until(lambda: not etcd.is_healthy(0), "a member without a leader", poll_s=0.1)
        began = time.monotonic()
        writing(node, put("/another", b"x"))
        assert time.monotonic() - began > LEADERLESS_S - 1
        with pytest.raises(CallError) as caught:
            writing(alone, put("/another", b"y"))
        assert caught.value.code == NO_ANSWER
        node.add("c1")
    etcd.wait_healthy(0, 1, 2)
    alone.add("c2")


class Proxy(http.server.BaseHTTPRequestHandler):
    """Passes requests on to a member."""

    loses_transactions = False
    delay_s = 0.0

    def do_POST(self) -> None:
        """Pass a request on, and the answer back."""
        content = self.rfile.read(int(self.headers["Content-Length"]))
        member = http.client.HTTPConnection(MEMBERS[0], 2379)
        member.request("POST", self.path, content)
        answer = member.getresponse().read()
        member.close()
        time.sleep(self.delay_s)
        if self.loses_transactions and self.path.endswith("/txn"):
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        with suppress(BrokenPipeError, ConnectionResetError):  # the client has given up
            self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def proxy(*, loses_transactions: bool = False, delay_s: float = 0.0) -> Iterator[str]:
    """Give the URL of such a proxy."""
    kind = type("Kind", (Proxy,), {"loses_transactions": loses_transactions, "delay_s": delay_s})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_an_answer_that_is_lost(node: Node) -> None:
    """The request is repeated at the next endpoint, and recognised as carried out: by ADD, and by DEL."""
    with proxy(loses_transactions=True) as url:
        node.etcd["endpoints"] = [url, f"http://{MEMBERS[1]}:2379"]
        (address,) = node.addresses("c1")
        assert [line.split()[1] for line in node.command("list").splitlines()[1:]] == [address]
        node.delete("c1")
        assert len(node.command("list").splitlines()) == 1


def test_a_slow_member(node: Node) -> None:
    """ADD waits for it; beyond the limit there is an error in time, and DEL releases what was carried out."""
    with proxy(delay_s=1.0) as url:
        node.status()  # the first call of a node takes its name, which needs two requests more
        slow = node.other("one")
        slow.etcd["endpoints"] = [url]
        slow.add("c1")
        slow.etcd["timeout"] = 0.5
        with failing(NO_ANSWER, r"etcd does not answer within 0\.5 s; .*no answer in 0\.[0-9] s: it hangs"):
            slow.add("c2")
    wait_until(lambda: len(node.command("list").splitlines()) == 3, "the member has carried it out")
    for container in ("c1", "c2"):
        node.delete(container)
    assert len(node.command("list").splitlines()) == 1


def test_certificates(private_namespaces: int, tmp_path: Path) -> None:
    """Both sides need one of the same authority; anything else is an error that says what is wrong."""
    assert private_namespaces
    subprocess.run(["sh", "-ec", certificates_script("server", "node")], cwd=tmp_path, check=True, capture_output=True)
    options = ("--client-cert-auth", f"--trusted-ca-file={tmp_path}/ca.pem", f"--cert-file={tmp_path}/server.pem")
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
        with failing(NO_ANSWER, "ALERT|does not accept the client's certificate"):
            node.add("c2")
        use("ca", "none")
        with failing(ErrorCode.INVALID_CONFIGURATION, "TLS files that cannot be used: .*none.pem"):
            node.add("c2")
        node.etcd = {"endpoints": ["http://127.0.0.1:2379"], "timeout": TIMEOUT_S}
        with failing(NO_ANSWER, "is it etcd|closed connection|Connection reset"):
            node.add("c2")


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


def test_another_program_s_keys(node: Node) -> None:
    """They are named, and stay."""
    key = f"/cni-ipam-etcd/attachments/one/{node.network}/c1/eth0"
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
    node.etcd["endpoints"] = [f"http://{MEMBERS[0]}:2381"]
    with failing(NO_ANSWER, "HTTP status 404: it has no JSON gateway /v3/kv/txn; is it etcd 3.4 or newer"):
        node.add("c1")


def test_the_operator_s_commands(node: Node) -> None:
    """The addresses of all nodes are listed; one node's are released if it is gone, or by force."""
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
    writing(node, put("/cni-ipam-etcd/nodes/two", b"2026-01-01T00:00:00.000000+00:00"))
    assert re.search("^two +1 +2026-01-01T00:00:00Z$", node.command("nodes"), re.MULTILINE)
    gone.command("seen")
    assert "two is alive" in node.command("release", "--node", "two")
    assert "c9 has no reservation" in node.command("release", "--node", "two", "--container", "c9", "--force")
    assert f"released {theirs[0]} on network {node.network}" in node.command("release", "--node", "two", "--force")
    assert node.command("list", "--node", "two").splitlines() == ["NETWORK  ADDRESS  NODE  CONTAINER ID  IFNAME  SINCE"]
    gone.delete("c2")  # the node comes back after all
