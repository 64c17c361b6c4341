# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Commands and changes of policies while the daemon does not run, or is killed."""

import signal
import subprocess
from collections.abc import Iterator
from itertools import count

import pytest

from cni_egress.enforcement import Enforcement
from cni_egress.policy import Policy
from cni_egress.records import Record
from cni_egress.tables import CLOSING, chain_of
from tests.egress.command import ask, chain_in_force, is_alive, run
from tests.egress.responder_host import Container, Host, guarded_host
from tests.egress.upstream import FakeUpstream, serving
from tests.lab.waiting import wait_until

pytestmark = pytest.mark.timeout(400)  # each command starts a process of Python
NUMBERS = count(10)
ALLOW = ("www.example.com", "git.example.com:22/tcp", "11.2.0.0/16:443")


@pytest.fixture(name="host")
def start_host(private_namespaces: int) -> Iterator[Host]:
    """A host with the daemon."""
    assert private_namespaces
    with serving(FakeUpstream()) as upstream, guarded_host(upstream) as made:
        upstream.add("www.example.com", "A", "11.1.0.1")
        upstream.add("git.example.com", "A", "11.1.0.2")
        made.start_daemon()
        yield made


@pytest.fixture(name="agent")
def start_agent(host: Host) -> Iterator[Container]:
    """A container on the network `agents`."""
    with host.container(next(NUMBERS), ALLOW) as container:
        yield container


def test_check_asks_the_kernel(host: Host, agent: Container) -> None:
    """What is missing in the tables is found, although the record has it."""
    address = str(agent.record.addresses[0])
    assert run("check", address, "11.2.0.1:443").returncode == 0
    host.stop_daemon()
    subprocess.run(["nft", "flush", "chain", "inet", "cni-egress", "guard"], check=True)
    ended = run("check", address, "11.2.0.1:443")
    assert (ended.returncode, "the tables cni-egress is missing" in ended.stdout) == (1, True)
    host.start_daemon()
    wait_until(lambda: run("check", address, "11.2.0.1:443").returncode == 0, "the tables are back")
    assert run("check", "unknown", "11.2.0.1:443").returncode == 2


def test_status(host: Host, agent: Container) -> None:
    """What is missing in the kernel, and which rules of others look at the bit of the mark."""
    assert ask("status") == {
        "version": 1,
        "isRunning": True,
        "needsDaemon": True,
        "attachments": 1,
        "mark": 0x10000000,
        "guarded": ["agents0"],
        "missing": [],
        "conflicts": [],
    }
    host.stop_daemon()
    subprocess.run(["nft", "flush", "chain", "inet", "cni-egress", "guard"], check=True)
    rule = ["priority", "5210", "fwmark", "0x50000000/0x70000000", "lookup", "main"]
    subprocess.run(["ip", "rule", "add", *rule], check=True)
    try:
        found = ask("status")
        text = run("status").stdout
    finally:
        subprocess.run(["ip", "rule", "delete", *rule], check=True)
    assert (found["isRunning"], [one["what"] for one in found["missing"]]) == (False, ["the tables cni-egress"])
    assert found["missing"][0]["containerId"] == agent.record.container_id
    assert found["conflicts"] == ["a routing rule of priority 5210 uses the mark 0x50000000/0x70000000"]
    assert text.splitlines()[0] == "cni-egress does not run; guarded attachments: 1"


def test_deny_without_the_daemon(host: Host, agent: Container) -> None:
    """It is possible; what had been opened is closed, because no one knows any more which name it was."""
    agent.addresses("git.example.com")
    host.stop_daemon()
    ask("deny", "agents", "www.example.com")
    assert not agent.can_reach("11.1.0.2", 22)
    assert "names need the daemon" in run("allow", "agents", "www.example.com").stderr
    ask("allow", "agents", "11.4.0.0/16:443")
    assert agent.can_reach("11.4.0.1")
    host.start_daemon()


def test_killed_in_the_middle(host: Host, agent: Container, monkeypatch: pytest.MonkeyPatch) -> None:
    """The container has the former policy or the new one; the daemon completes what was begun."""
    narrow = Record.from_document({**agent.record.document, "policy": Policy.parse(["git.example.com"]).document})
    chains = {chain_of(one.policy, one.subnets) for one in (narrow, agent.record)} | {CLOSING}
    agent.addresses("www.example.com")
    with agent.connect("11.1.0.1") as client:
        host.stop_daemon(signal.SIGKILL)
        with host.records.locked(), Enforcement(host.records) as enforcement:
            monkeypatch.setattr(enforcement, "_close", lambda _: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                enforcement.change_policy(narrow)
        assert chain_in_force(narrow) in chains
        assert not agent.can_reach("11.1.0.1")
        host.start_daemon()
        wait_until(lambda: chain_in_force(narrow) == chain_of(narrow.policy, narrow.subnets), "it is completed", 20)
        assert not is_alive(host, 443, client)
    assert not agent.can_reach("11.1.0.1")
