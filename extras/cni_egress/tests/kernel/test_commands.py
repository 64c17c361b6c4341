# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The commands of `cni-egress`: what they show is what the kernel does, and what they change is in force at once."""

import json
import subprocess
import time
from collections.abc import Iterator
from itertools import count

import pytest

from cni_egress.nftables import Family, Nftables, key_address, key_ifname
from cni_egress.tables import chain_of
from tests.egress.command import ask, chain_in_force, is_alive, run
from tests.egress.responder_host import COMMAND, Container, Host, guarded_host
from tests.egress.upstream import FakeUpstream, serving
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(400)  # each command starts a process of Python
NUMBERS = count(10)
ALLOW = ("www.example.com", "git.example.com:22/tcp", "11.2.0.0/16:443")


@pytest.fixture(name="host", scope="module")
def start_host(private_namespaces: int) -> Iterator[Host]:
    """A host with the daemon."""
    assert private_namespaces
    with serving(FakeUpstream()) as upstream, guarded_host(upstream) as made:
        upstream.add("www.example.com", "A", "11.1.0.1", "11.1.0.9")
        upstream.add("git.example.com", "A", "11.1.0.2", "11.1.0.9")
        upstream.add("new.example.com", "A", "11.1.0.3")
        made.start_daemon()
        yield made


@pytest.fixture(name="agent")
def start_agent(host: Host) -> Iterator[Container]:
    """A container on the network `agents`."""
    with host.container(next(NUMBERS), ALLOW) as container:
        yield container


def test_ls(agent: Container) -> None:
    """Policies, containers, the addresses that names have opened with their time, and refusals."""
    agent.addresses("www.example.com")
    agent.can_reach("11.9.0.1")
    for _ in range(2):
        assert agent.can_reach("11.1.0.1")
    assert agent.can_reach("11.2.0.1")
    wait_until(lambda: ask("ls")[0]["attachments"][0]["refused"] > 0, "the refusal is in the log")
    (network,) = ask("ls", "--network", "agents")
    (attachment,) = network["attachments"]
    assert network | {"attachments": []} == {
        "network": "agents",
        "audit": False,
        "allow": list(ALLOW),
        "subnets": ["10.66.0.0/24", "fd00:66::/64"],
        "attachments": [],
    }
    assert attachment["containerId"] == agent.record.container_id
    assert attachment["addresses"] == [str(one) for one in agent.record.addresses]
    assert [(one["name"], one["address"], one["ports"]) for one in attachment["open"]] == [
        ("www.example.com", "11.1.0.1", ["443/tcp", "443/udp", "80/tcp"]),
        ("www.example.com", "11.1.0.9", ["443/tcp", "443/udp", "80/tcp"]),
    ]
    assert attachment["reached"] == [
        {"name": "", "address": "11.2.0.1", "port": "443/tcp", "connections": 1},
        {"name": "www.example.com", "address": "11.1.0.1", "port": "443/tcp", "connections": 2},
    ]
    assert 600 < attachment["open"][0]["seconds"] <= 660
    assert ask("ls", "--network", "none") == []
    shown = run("ls").stdout
    assert "open: www.example.com 11.1.0.1 443/tcp, 443/udp, 80/tcp for 6" in shown
    assert "reached: www.example.com 11.1.0.1 443/tcp (2)" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


@pytest.mark.parametrize(
    ("destination", "status", "why"),
    [
        ("11.2.3.4:443", 0, "11.2.0.0/16:443/tcp"),
        ("11.2.3.4:22", 1, "destination not allowed"),
        ("11.1.0.1:443", 0, "www.example.com has opened it"),
        ("11.1.0.1:22", 1, "port not allowed: open are 80/tcp, 443/tcp, 443/udp"),
        ("11.1.0.1:53/udp", 0, "queries go to cni-egress"),
        ("11.0.0.1:443", 1, "an address of the host"),
        ("10.66.0.99:1", 0, "containers of the network reach each other"),
        ("169.254.169.254:80", 1, "destination not allowed"),
        ("www.example.com:443/udp", 0, "the allow-list has www.example.com"),
        ("www.example.com:22", 1, "port not allowed: www.example.com is allowed with 80/tcp, 443/tcp, 443/udp"),
        ("evil.example:443", 1, "name not allowed"),
        ("www.example.com", 2, ""),
        ("*.example.com:443", 2, ""),
    ],
)  # fmt: skip
def test_check(agent: Container, destination: str, status: int, why: str) -> None:
    """The exit status says whether it may connect, and the text why; the container itself finds the same."""
    agent.addresses("www.example.com")
    ended = run("check", agent.record.container_id, destination, "--json")
    assert ended.returncode == status
    if status == 2:
        assert "write" in ended.stderr
        return
    answer = json.loads(ended.stdout)
    assert (answer["allowed"], answer["network"]) == (status == 0, "agents")
    assert why in answer["why"]
    host, _, port = destination.partition(":")
    if host.startswith("11.") and port in {"22", "443"}:
        assert agent.can_reach(host, int(port)) is answer["allowed"]


def test_allow(host: Host, agent: Container) -> None:
    """The containers of the network may reach more at once; their connections go on."""
    with host.container(next(NUMBERS), [*ALLOW, "own.example.com"]) as other:
        assert agent.addresses("new.example.com") == []
        with agent.connect("11.2.0.1") as client:
            done = ask("allow", "agents", "new.example.com", "11.3.0.0/16:22")
            assert (done["attachments"], len(done["changed"])) == (2, 2)
            assert is_alive(host, 443, client)
        for one in (agent, other):
            assert one.addresses("new.example.com") == ["11.1.0.3"]
            assert one.can_reach("11.1.0.3")
            assert (one.can_reach("11.3.0.1", 22), one.can_reach("11.3.0.1")) == (True, False)
        (network,) = ask("ls")
        assert network["allow"] == [*ALLOW, "new.example.com", "11.3.0.0/16:22"]
        assert sorted(one["allow"] for one in network["attachments"]) == [[], ["own.example.com"]]
        assert ask("allow", "agents", "new.example.com")["changed"] == []
        host.change_policy(other, [*ALLOW])


def test_deny_a_network(host: Host, agent: Container) -> None:
    """Its connections end, others go on."""
    ask("allow", "agents", "11.3.0.0/16:443")
    agent.addresses("www.example.com")
    with agent.connect("11.2.0.1") as kept, agent.connect("11.3.0.1") as ended, agent.connect("11.1.0.1", 80) as named:
        assert ask("deny", "agents", "11.3.0.0/16:443") == {
            "network": "agents",
            "attachments": 1,
            "changed": [agent.record.container_id],
            "notes": [],
        }
        assert is_alive(host, 443, kept)
        assert is_alive(host, 80, named)
        assert not is_alive(host, 443, ended)
    assert not agent.can_reach("11.3.0.1")


def test_deny_a_name(host: Host, agent: Container) -> None:
    """What it had opened is closed, also its connections; what another name has opened stays open."""
    for name in ("www.example.com", "git.example.com"):
        agent.addresses(name)
    with agent.connect("11.1.0.2", 22) as kept, agent.connect("11.1.0.1") as ended, agent.connect("11.2.0.1") as fixed:
        ask("deny", "agents", "WWW.example.com")
        assert is_alive(host, 22, kept)
        assert is_alive(host, 443, fixed)
        assert not is_alive(host, 443, ended)
    assert [agent.can_reach("11.1.0.1"), agent.can_reach("11.1.0.9"), agent.can_reach("11.1.0.9", 22)] == [
        False,
        False,
        True,
    ]
    assert agent.addresses("www.example.com") == []


def test_deny_the_last_name(agent: Container) -> None:
    """Queries do not go to the responder any more."""
    ask("deny", "agents", "www.example.com", "git.example.com:22/tcp")
    with Nftables() as nftables:
        key = key_ifname(agent.record.link) + key_address(agent.record.addresses[0])
        assert nftables.find(Family.INET, "askers4", key) is None
    assert agent.can_reach("11.2.0.1")


def test_refused_changes(agent: Container) -> None:
    """The error says why, and nothing is changed."""
    for arguments, text in {
        ("allow", "agents", "new.example.com", "https://x.example"): "a policy knows no https://",
        ("allow", "agents", "@none"): "/etc/cni-bridge/egress.d/none",
        ("allow", "agents", "*.com"): "anyone can have a name below com",
        ("deny", "agents", "new.example.com"): "is not in the allow-list of agents, which has www.example.com",
        ("allow", "none", "https://x.example"): "a policy knows no https://",
    }.items():
        ended = run(*arguments)
        assert (ended.returncode, text in ended.stderr) == (1, True), ended.stderr
    assert ask("ls")[0]["allow"] == list(ALLOW)
    assert "no container is on none" in run("allow", "none", "new.example.com").stdout
    ask("allow", "agents", "*.example.com")
    assert "another entry still allows www.example.com" in run("deny", "agents", "www.example.com").stdout
    assert agent.addresses("new.example.com") == ["11.1.0.3"]


def test_killed_at_any_time(host: Host, agent: Container) -> None:
    """Kill -9 after ever longer times; afterwards the kernel has what the record says."""
    for number in range(10):
        entry = "11.5.0.0/16:443"
        process = subprocess.Popen(
            [COMMAND, "allow" if number % 2 == 0 else "deny", "agents", entry],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.15 + number * 0.04)
        process.kill()
        process.wait()

        def agrees() -> bool:
            record = host.records.by_source(agent.record.addresses[0])
            assert record is not None
            return chain_in_force(record) == chain_of(record.policy, record.subnets)

        wait_until(agrees, "the kernel has the policy of the record", 20)
        record = host.records.by_source(agent.record.addresses[0])
        assert record is not None
        assert record.policy.entries in (ALLOW, (*ALLOW, entry))
        assert agent.can_reach("11.5.0.1") == (entry in record.policy.entries)


def test_log(agent: Container) -> None:
    """All lines of a network, and with --follow those that come; also over the end of a file."""
    assert not agent.can_reach("11.9.1.1")
    wait_until(lambda: "11.9.1.1:443" in run("log", "--network", "agents").stdout, "the refusal is shown")
    assert run("log", "--network", "other").stdout == ""
    with subprocess.Popen([COMMAND, "log", "--follow", "--json"], stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        addresses = (json.loads(line).get("address") for line in following.stdout)
        assert next(one for one in addresses if one == "11.9.1.1")
        assert not agent.can_reach("11.9.1.2")
        assert next(one for one in addresses if one == "11.9.1.2")
        following.kill()


def test_learn(host: Host) -> None:
    """An audit network's log becomes an allow-list, with which the same connections are allowed."""
    with host.container(next(NUMBERS), (), audit=True, network="probe") as probe:
        probe.addresses("www.example.com")
        assert all((probe.can_reach("11.1.0.1"), probe.can_reach("11.1.0.1", 80), probe.can_reach("11.7.0.1", 22)))
        wait_until(lambda: len(ask("learn", "probe")) >= 2, "all is logged")
        assert run("learn", "probe").stdout.split("\n") == ["--allow 11.7.0.1:22/tcp", "--allow www.example.com", ""]
        learnt = ask("learn", "probe")
    with host.container(next(NUMBERS), learnt) as container:
        container.addresses("www.example.com")
        assert all((container.can_reach("11.1.0.1", 80), container.can_reach("11.7.0.1", 22)))
    assert run("learn", "none").returncode == 1
