# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon `cni-egress` itself: its rights, its end, its log, and what it repairs."""

import json
import pwd
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cni_egress.daemon import LOG_FILE
from cni_egress.records import DIRECTORY
from tests.egress.responder_host import COMMAND, Container, Host, guarded_host
from tests.egress.upstream import FakeUpstream, serving
from tests.kernel.namespace import Namespace
from tests.lab.waiting import wait_until

METRICS = "127.0.0.1:9792"
NUMBERS = count(10)


@pytest.fixture(name="host")
def start_host(private_namespaces: int) -> Iterator[Host]:
    """A host, on which the daemon does not run yet."""
    assert private_namespaces
    with serving(FakeUpstream()) as upstream, guarded_host(upstream) as made:
        upstream.add("www.example.com", "A", "11.1.0.1")
        yield made


@pytest.fixture(name="agent")
def start_agent(host: Host) -> Iterator[Container]:
    """A container with one name."""
    with host.container(next(NUMBERS), ["www.example.com"]) as container:
        yield container


def refusals(kind: str, container: Container) -> list[dict[str, object]]:
    """Return what the log has of a kind and a container."""
    path = DIRECTORY / LOG_FILE
    lines = path.read_text().splitlines() if path.exists() else []
    found = map(json.loads, lines)
    return [one for one in found if (one["kind"], one.get("container")) == (kind, container.record.container_id)]


def test_its_rights(host: Host) -> None:
    """It is another user, and may configure networks; nothing else, and no child process gets more."""
    host.start_daemon()
    assert host.daemon is not None
    lines = Path(f"/proc/{host.daemon.pid}/status").read_text().splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    expected = f"{1 << 12:016x}"
    assert [status[f"Cap{kind}"] for kind in ("Inh", "Prm", "Eff", "Bnd", "Amb")] == [expected] * 5
    assert status["Uid"].split() == ["65534"] * 4
    assert status["NoNewPrivs"] == "1"
    records = DIRECTORY.stat()
    assert (records.st_uid, records.st_gid, records.st_mode & 0o777) == (0, pwd.getpwuid(65534).pw_gid, 0o750)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_its_end(host: Host, agent: Container, number: signal.Signals) -> None:
    """What was open stays open, nothing else is, and nothing of the daemon is left; the next one goes on."""
    host.start_daemon()
    assert agent.addresses("www.example.com") == ["11.1.0.1"]
    assert host.stop_daemon(number) == (0 if number != signal.SIGKILL else -signal.SIGKILL)
    wait_until(lambda: "cni-dns" not in Namespace(Path("/proc/self/ns/net")).links(), "the link is gone")
    assert agent.can_reach("11.1.0.1")
    assert not agent.can_reach("11.1.0.2")
    assert not agent.can_reach("169.254.53.53", 53)
    host.start_daemon()
    assert agent.addresses("www.example.com") == ["11.1.0.1"]


def test_one_daemon(host: Host) -> None:
    """A second one does not start, and leaves the first one alone."""
    host.start_daemon()
    second = subprocess.run([COMMAND, "run"], capture_output=True, text=True, check=False)
    assert (second.returncode, second.stderr.strip()) == (1, "Error: another cni-egress runs already")
    assert host.daemon is not None
    assert host.daemon.poll() is None


def test_it_ends_without_its_link(host: Host) -> None:
    """A supervisor starts it again then: as another user it cannot make the namespace again."""
    host.start_daemon()
    subprocess.run(["ip", "link", "delete", "cni-dns"], check=True)
    assert host.daemon is not None
    assert host.daemon.wait(20) == 1
    host.daemon = None


def test_refused_connections_are_logged(host: Host, agent: Container) -> None:
    """With the container, the name that led to the address, and the reason."""
    host.start_daemon()
    agent.addresses("www.example.com")
    assert not agent.can_reach("11.1.0.1", 22)
    assert not agent.can_reach("11.9.9.9", 443)
    wait_until(lambda: len(refusals("connection", agent)) >= 2, "both are logged")
    found = {one["address"]: one for one in refusals("connection", agent)}
    assert found["11.1.0.1"] | {"time": ""} == {
        "schema": 1,
        "time": "",
        "kind": "connection",
        "why": "port not allowed",
        "container": agent.record.container_id,
        "network": "agents",
        "source": str(agent.record.addresses[0]),
        "name": "www.example.com",
        "address": "11.1.0.1",
        "port": 22,
        "protocol": "tcp",
    }
    assert (found["11.9.9.9"]["why"], "name" in found["11.9.9.9"]) == ("destination not allowed", False)


def test_refused_names_are_logged(host: Host, agent: Container) -> None:
    """With the type of the record, once in half a minute; so are addresses that were taken out of an answer."""
    host.start_daemon()
    host.upstream.add("www.example.com", "A", "10.0.0.1")
    for _ in range(3):
        agent.ask("evil.example", "TXT")
        agent.ask("www.example.com")
    (name,) = refusals("name", agent)
    assert (name["name"], name["type"], name["why"]) == ("evil.example", 16, "name not allowed")
    (one,) = refusals("address", agent)
    assert (one["name"], one["address"], one["why"]) == ("www.example.com", "10.0.0.1", "address not public")


@pytest.mark.parametrize(
    "command",
    [
        "nft flush ruleset",
        "nft delete table inet cni-egress",
        "nft flush chain inet cni-egress guard",
        "nft flush set inet cni-egress links",
    ],
)
def test_tables_are_repaired(host: Host, agent: Container, command: str) -> None:
    """They are put in force again; names in use are open without a query."""
    host.start_daemon()
    assert agent.addresses("www.example.com") == ["11.1.0.1"]
    subprocess.run(command.split(), check=True)
    wait_until(lambda: not agent.can_reach("11.1.0.2") and agent.can_reach("11.1.0.1"), "the tables are back", 10)


def test_routing_rules_are_repaired(host: Host, agent: Container) -> None:
    """The second lock is put back when a program has removed it."""
    host.start_daemon()
    own = Namespace(Path("/proc/self/ns/net"))
    assert agent.record.link.encode() in own.run("ip rule show priority 40")
    own.ip("rule delete priority 40")
    wait_until(lambda: agent.record.link.encode() in own.run("ip rule show priority 40"), "the rule is back", 20)


def test_guards_end_with_their_links(host: Host, agent: Container) -> None:
    """The set and the rules of a link that is gone are removed; those of containers are in force all the time."""
    own = Namespace(Path("/proc/self/ns/net"))
    own.run("nft add element inet cni-egress links { gone0 }")
    own.ip("rule add priority 40 iif gone0 fwmark 0/0x10000000 blackhole")
    another = "priority 40 from 10.9.0.0/16 iif gone1 fwmark 0x1/0x1 blackhole"  # an administrator's
    own.ip(f"rule add {another}")
    host.start_daemon()
    wait_until(lambda: b"gone0" not in own.run("nft list ruleset") + own.run("ip rule"), "the guard has gone", 20)
    assert b"gone1" in own.run("ip rule")
    own.ip(f"rule delete {another}")
    assert agent.record.link.encode() in own.run("ip rule show priority 40")
    assert not agent.can_reach("11.1.0.1")


def scrape() -> dict[tuple[str, ...], float]:
    """Return the metrics: name and values of labels → value."""
    with urlopen(f"http://{METRICS}/metrics", timeout=5) as response:
        families = text_string_to_metric_families(response.read().decode())
        return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def test_its_metrics(host: Host, agent: Container) -> None:
    """What it answers, refuses and repairs is counted by network; a scrape is answered without rights."""
    host.start_daemon("--metrics-listen", METRICS)
    for _ in range(3):
        agent.addresses("www.example.com")
    agent.ask("evil.example")
    assert not agent.can_reach("11.9.9.9", 443)
    wait_until(lambda: bool(refusals("connection", agent)), "the refusal is logged")
    wait_until(lambda: scrape().get(("cni_egress_containers", "agents")) == 1, "the container is counted", 10)
    found = scrape()
    assert found["cni_egress_queries_total", "agents", "noerror"] == 3
    assert found["cni_egress_queries_total", "agents", "nxdomain"] == 1
    assert found["cni_egress_answer_duration_seconds_count",] == 3
    assert found["cni_egress_refused_total", "name", "agents", "name not allowed"] == 1
    assert found["cni_egress_refused_total", "connection", "agents", "destination not allowed"] == 1
    assert (found["cni_egress_names", "agents"], found["cni_egress_open_addresses", "agents"]) == (1, 1)
    assert (found["cni_egress_repairs_total",], found["cni_egress_upstream_up",]) == (0, 1)
    subprocess.run(["nft", "flush", "ruleset"], check=True)
    wait_until(lambda: scrape()["cni_egress_repairs_total",] > 0, "the repair is counted", 10)


def test_an_address_for_metrics_that_is_taken(host: Host) -> None:
    """The daemon does not start, and says which option is meant."""
    with socket.create_server(("127.0.0.1", 9792)):
        done = subprocess.run(
            [COMMAND, "run", "--config", "/dev/null", "--metrics-listen", METRICS],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr == f"Error: cannot listen at {METRICS}: Address already in use; set --metrics-listen\n"
    assert host.daemon is None
