# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The networks of docs/hosts.md, each typed on two hosts: containers reach each other by address and by name.

They do so again after the kill of each daemon on each host, and after a host was away; a port that one host publishes
answers the other. How fast they are is shown beside Docker's overlay.
"""

import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import pytest

from tests.hosts.host import Host
from tests.lab import CommandFailed, Engine, Lab, LabError, wait_until
from tests.managed_plugin.managed import daemon_pids
from tests.managed_plugin.swarm import LIMIT_S, NODES, fetch, link, remove, swarm, tasks, two_labs, wait_found

pytestmark = pytest.mark.timeout(900)

PORT: Final = 8088
BYTES: Final = 300_000
"""Many packets of the largest size."""
MEASURED: Final = 200_000_000
SERVE: Final = f"hostname > /index.html; head -c {BYTES} /dev/zero > /large; exec httpd -f -p 80 -h /"
SECOND: Final[Mapping[str, Mapping[str, str]]] = {
    "Routed": {"10.60.1.0/24": "10.60.2.0/24", "65001": "65002", "65002": "65001"},
    "Stretched": {"10.61.0.127": "10.61.0.254", "10.61.0.16": "10.61.0.128", "10.61.0.1": "10.61.0.2"},
    "OVN": {
        "host=host1 address=10.98.0.1": "host=host2 address=10.98.0.2",
        "replace 10.98.0.1": "replace 10.98.0.2",
        "00:01": "00:02",
        "10.62.0.1": "10.62.0.2",
    },
    "LAN": {"10.63.0.127": "10.63.0.254", "10.63.0.16": "10.63.0.128"},
}
"""Section → what the second host has instead of what is printed, besides the hosts' addresses."""
MTU: Final = {"Routed": 1500, "Stretched": 1450, "OVN": 1400, "LAN": 1500}
LAN: Final = ("10.63.0.2", "10.63.0.3")
"""The addresses of the hosts on the LAN of `eth1`, which in other sections is the link of tunnels, or of no use."""


@pytest.fixture(name="hosts", params=SECOND)
def make_hosts(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Sequence[Host]]:
    """Two hosts with the recipe of a section, in a swarm."""
    section: str = request.param
    own = dict(zip(NODES, reversed(NODES), strict=True))
    with two_labs(engine) as labs:
        link(*labs, "eth1")
        if section == "LAN":
            for lab, address in zip(labs, LAN, strict=True):
                lab.run("ip", "address", "add", f"{address}/24", "dev", "eth1")
        hosts = Host(labs[0], section), Host(labs[1], section, {**SECOND[section], **own})
        for host in hosts:
            host.set_up()
        with swarm(*labs):
            yield hosts
        for host in hosts:
            host.kill_engine()


def test_a_network_of_two_hosts(hosts: Sequence[Host], request: pytest.FixtureRequest) -> None:
    """Each container fetches a file of each other one, found by name; nothing is left in the end."""
    section: str = request.node.callspec.params["hosts"]
    name, labs = section.lower(), [host.lab for host in hosts]
    manager = labs[0]
    before = [lab.state() for lab in labs]
    hosts[0].make_network()
    service = ("service", "create", "--detach", "--no-resolve-image", "--name", "web", "--mode", "global")
    ports = () if section == "LAN" else ("--publish", f"mode=host,published={PORT},target=80")
    manager.docker(*service, *ports, "--network", name, "--restart-delay", "1s", "busybox", "sh", "-c", SERVE)
    wait_connected(labs)
    for lab in labs:
        (task,) = tasks(lab, "web")
        (shown,) = lab.container(task).ip("link", "show", "eth0")
        assert shown["mtu"] == MTU[section]
    for number, lab in enumerate(labs):
        (task,) = tasks(labs[1 - number], "web")
        own = str(labs[1 - number].container(task).link().addresses[0].ip)
        place = (own, 80) if section == "LAN" else (NODES[1 - number], PORT)
        wait_until(partial(answers, lab, *place, task[:12]), f"a port, from host {number}", LIMIT_S)

    for lab in labs:
        (pid,) = daemon_pids(lab)
        lab.run("kill", "-KILL", pid)
    wait_connected(labs)
    for host in hosts:
        host.kill_engine()
        host.start_engine()
        wait_connected(labs)
    for lab in labs:
        lab.restart_dockerd(signal.SIGKILL)
        wait_connected(labs)
    labs[1].run("sh", "-c", "ip link set node0 down; ip link set eth1 down")
    time.sleep(15.0)  # the swarm's manager and the engine have noticed it
    labs[1].run("sh", "-c", "ip link set node0 up; ip link set eth1 up")
    wait_connected(labs)

    remove(manager, labs, name, before)


def test_throughput(hosts: Sequence[Host], request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown beside that of Docker's overlay on the same hosts."""
    section: str = request.node.callspec.params["hosts"]
    name, labs = section.lower(), [host.lab for host in hosts]
    manager = labs[0]
    hosts[0].make_network()
    manager.docker("network", "create", "-d", "overlay", "over")
    found = {}
    for network in (name, "over"):
        service = ("service", "create", "--detach", "--no-resolve-image", "--name", network, "--mode", "global")
        one = ("--endpoint-mode", "dnsrr", "--network", network)
        manager.docker(*service, *one, "busybox", "httpd", "-f", "-p", "80", "-h", "/")
        wait_found(labs, network)
        found[network] = max(measure(labs, network) for _ in range(3))
    with capsys.disabled():
        sys.stdout.write(f"\n{section}: {found[name]:.0f} MB/s, Docker's overlay: {found['over']:.0f} MB/s\n")


@pytest.mark.parametrize("hosts", ["Stretched"], indirect=True)
def test_what_the_doctor_finds(hosts: Sequence[Host]) -> None:
    """It says what drops the packets of the other host, unless the rule of the recipe is there."""
    host, _ = hosts
    rule = "DOCKER-USER -s 10.61.0.0/24 -d 10.61.0.0/24 -j ACCEPT"
    dropped = "drops what other hosts on bridge br-lan send"
    shown = diagnose(host.lab)
    assert shown
    assert dropped not in shown
    host.lab.run("iptables", "-D", *rule.split())
    assert dropped in diagnose(host.lab)


def diagnose(lab: Lab) -> str:
    """Return what the doctor shows."""
    return lab.run(sys.executable, "-m", "cnm_bridge", "doctor", "--quick", check=False).stdout


def wait_connected(labs: Sequence[Lab]) -> None:
    """Wait until a task on each host finds all tasks by name, and receives a large file from each."""
    try:
        wait_found(labs, "web")
        wait_until(partial(are_connected, labs), "connected containers", LIMIT_S, poll_s=1.0)
    except LabError as exc:
        shown = labs[0].run("docker", "service", "ps", "--no-trunc", "web", check=False)
        routes = "\n".join(lab.run("ip", "route").stdout for lab in labs)
        raise LabError(f"{exc}\n{shown.stdout}{shown.stderr}{routes}") from exc


def are_connected(labs: Sequence[Lab]) -> bool:
    """Return whether each task receives the file of each other one."""
    try:
        running = [(lab, task) for lab in labs for task in tasks(lab, "web")]
        names = [lab.docker("inspect", "--format", "{{.Name}}", task)[1:] for lab, task in running]
        command = ("timeout", "5", "wget", "-q", "-O", "-")
        return len(running) == len(labs) and all(
            len(lab.docker("exec", task, *command, f"http://{name}/large")) == BYTES
            for lab, task in running
            for name in names
        )
    except CommandFailed:  # a connection times out, dockerd is starting, or a task has just ended
        return False


def answers(lab: Lab, address: str, port: int, name: str) -> bool:
    """Return whether a port of another host, or of a task on it, answers with the name of the task."""
    return fetch(lab, address, port) == name


def measure(labs: Sequence[Lab], service: str) -> float:
    """Return the MB per second that a task on the first host receives from the task on the second one."""
    (here,), (there,) = (tasks(lab, service) for lab in labs)
    address = labs[1].container(there).link().addresses[0].ip
    labs[1].docker("exec", there, "sh", "-c", f"head -c {MEASURED} /dev/zero > /measured")
    started = time.monotonic()
    command = ("timeout", "100", "wget", "-q", "-O", "/dev/null", f"http://{address}/measured")
    labs[0].docker("exec", here, *command, timeout_s=120)
    return MEASURED / 1e6 / (time.monotonic() - started)
