# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Guarded networks: the daemon that is down, what is missing in the kernel, marks in conflict, and ways out."""

from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.operator.doctor.facts import Facts, Finding, GuardFacts, JoinedEndpoint, Severity
from cnm_bridge.operator.doctor.gather import find_unjoined
from cnm_bridge.operator.doctor.guarded import check_guarded
from tests.unit.cnm_bridge.operator.doctor.host import BRIDGE, HEALTHY, configured

WEB = "c" * 64
STATUS: JsonObject = {
    "version": 1,
    "isRunning": True,
    "needsDaemon": False,
    "attachments": 2,
    "mark": 0x10000000,
    "guarded": [],
    "missing": [],
    "conflicts": [],
}


def host(*allow: str, audit: bool = False, **status: JsonValue) -> Facts:
    """Return a host with a guarded network."""
    egress: JsonObject = {"type": "egress", "allow": list(allow), **({"audit": True} if audit else {})}
    guard = GuardFacts(status={**STATUS, **status})
    return replace(HEALTHY, networks=(configured(BRIDGE, egress),), guard=guard)


def found(facts: Facts) -> list[Finding]:
    """Return the findings."""
    return list(check_guarded(facts))


def test_a_healthy_host() -> None:
    """Nothing is found, with and without guarded networks; addresses need no daemon."""
    assert found(HEALTHY) == []
    assert found(host("a.example")) == []
    assert (
        found(host("10.0.5.7", "10.0.0.0/8:443/tcp", "2001:db8::/32", "[2001:db8::]:1", "host:80", isRunning=False))
        == []
    )


@pytest.mark.parametrize(
    "facts",
    [
        host("10.0.5.7", "face.de", isRunning=False),
        host("*.a.example", isRunning=False),
        host("@github", isRunning=False),
        host(audit=True, isRunning=False),
        host(isRunning=False, needsDaemon=True),
    ],
)
def test_the_daemon_is_down(facts: Facts) -> None:
    """Names need it."""
    (one,) = found(facts)
    assert (one.severity, one.code) == (Severity.ERROR, "guarded-no-daemon")
    assert one.fix == "systemctl enable --now cni-egress"


def test_something_is_missing_in_the_kernel() -> None:
    """The finding says what, and of how many containers."""
    missing: JsonObject = {
        "containerId": "5a" * 32,
        "ifName": "eth0",
        "network": "lan",
        "what": "the tables cni-egress",
    }
    (one,) = found(host(missing=[missing]))
    assert (one.code, one.fix) == ("guarded-incomplete", "systemctl restart cni-egress")
    assert "protects 1 of 2 guarded containers: the tables cni-egress of 5a5a5a5a5a5a is missing" in one.text


def test_marks_of_others() -> None:
    """A rule conflicts if it looks at the same bit."""
    conflict = "a routing rule of priority 9 uses the mark 0x10000000/0x10000000"
    (one,) = found(host(conflicts=[conflict]))
    assert (one.code, one.text.startswith(conflict)) == ("guarded-mark", True)


def test_a_bridge_that_another_network_guards() -> None:
    """A network that is not guarded cannot use it; one with the plugin in its list, or with options, can."""
    guard = GuardFacts(status={**STATUS, "guarded": ["cni-blue"]})
    (one,) = found(replace(HEALTHY, guard=guard))
    assert (one.code, one.subject) == ("guarded-bridge", "Docker network blue")
    assert "ip link del cni-blue" in one.advice
    networks = (replace(HEALTHY.engine.networks[0], is_guarded=True),)
    assert found(replace(HEALTHY, guard=guard, engine=replace(HEALTHY.engine, networks=networks))) == []
    assert found(host("10.0.5.7", guarded=["cni-blue"])) == []


@pytest.mark.parametrize(("others", "words"), [(["bridge"], "bridge, which is"), (["b", "c"], "b and c, which are")])
def test_a_way_out(others: list[str], words: str) -> None:
    """A guarded container with an open network reaches everything there; two guarded networks have one finding."""
    endpoint = JoinedEndpoint(container="web", configuration="lan", ways_out=others)
    (one,) = found(replace(HEALTHY, endpoints=(endpoint, endpoint)))
    assert (one.code, one.subject, f"on {words} neither" in one.text) == ("guarded-way-out", "container web", True)
    assert one.fix == " && ".join(f"docker network disconnect {other} web" for other in others)


def test_networks_that_docker_only_lists() -> None:
    """The daemon or Docker knows an endpoint on the others; a stopped container can be taken off, and needs not be."""
    entries = {"n1": "held", "n2": "known", "n3": "gone", "": ""}
    listed: JsonObject = {
        f"net{number}": {"NetworkID": one, "EndpointID": end} for number, (one, end) in enumerate(entries.items(), 1)
    }
    document: JsonObject = {"Id": WEB, "Names": ["/web"], "State": "running", "NetworkSettings": {"Networks": listed}}
    bare: JsonObject = {"Internal": False, "Containers": {}}
    networks = [EngineNetwork.from_json({**bare, "Id": f"n{it}", "Name": f"net{it}"}) for it in (1, 3, 4, 5)]
    known: JsonObject = {**bare, "Id": "n2", "Name": "net2", "Containers": {WEB: {"EndpointID": "known"}}}
    networks.append(EngineNetwork.from_json(known))
    held: JsonObject = {"endpoints": [{"id": "held", "networkId": "n1"}]}
    unjoined = tuple(find_unjoined(held, [EngineContainer.from_json(document)], networks))
    (one,) = found(replace(HEALTHY, unjoined=unjoined))
    assert (one.code, one.subject, "lists net3 and net4 for it" in one.text) == ("not-joined", "container web", True)
    off = "docker network disconnect net3 web && docker network disconnect net4 web"
    assert one.fix == f"docker stop web && {off} && docker start web"
    stopped = EngineContainer.from_json({**document, "State": "exited"})
    assert [*find_unjoined(held, [stopped], networks)] == []


def test_the_command_does_not_answer() -> None:
    """Its own text says what to do; a status of another version is no crash."""
    (one,) = found(replace(HEALTHY, guard=GuardFacts(silence="cni-egress is not installed")))
    assert (one.code, "cni-egress is not installed" in one.text) == ("guarded-unknown", True)
    (one,) = found(replace(HEALTHY, guard=GuardFacts(status={**STATUS, "missing": 7})))
    assert one.code == "guarded-unknown"
