# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lab's guard: it reports what a test leaves behind."""

import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from cni_invoker.documents.jsontypes import JsonObject, as_object, parse_json
from tests.lab import Lab, leftovers, wait_until
from tests.system.stand_in import STAND_IN

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a lab, which makes namespaces and mounts, needs root")


def cni(lab: Lab, verb: str, plugin: str, config: JsonObject, **environment: str) -> JsonObject:
    """Run a CNI plugin on the namespace `staging` and return its result."""
    env = {"CNI_COMMAND": verb, "CNI_CONTAINERID": "abc", "CNI_NETNS": "/run/netns/staging", "CNI_IFNAME": "eth0"}
    env |= {"CNI_PATH": "/usr/lib/cni"} | environment
    text = json.dumps({"cniVersion": "1.0.0", "name": "lan", "type": plugin, **config})
    output = lab.run(f"/usr/lib/cni/{plugin}", input=text, env=env).stdout
    return as_object(parse_json(output.encode() or b"{}"), "the result")


@pytest.mark.smoke
def test_the_guard_names_every_artifact_of_an_attachment(docker_lab: Lab) -> None:
    """After ADD every kind of artifact is reported, except shared ones; after DEL nothing is."""
    bridge: JsonObject = {
        "bridge": "cni-left",
        "isGateway": True,
        "ipMasq": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.9.0.0/24"}], [{"subnet": "fd00:9::/64"}]]},
    }
    mapping: JsonObject = {"hostPort": 81, "containerPort": 80, "protocol": "tcp"}
    before = docker_lab.state()
    docker_lab.run("ip", "netns", "add", "staging")
    result = cni(docker_lab, "ADD", "bridge", bridge)
    chained: tuple[tuple[str, JsonObject], ...] = (
        ("portmap", {"runtimeConfig": {"portMappings": [mapping]}, "prevResult": result}),
        ("firewall", {"ingressPolicy": "same-bridge", "prevResult": result}),
        ("tuning", {"mtu": 1400, "prevResult": result}),
    )
    for plugin, config in chained:
        cni(docker_lab, "ADD", plugin, config)

    left = leftovers(before, docker_lab.state())
    for line in (
        r"network namespaces: /run/netns/staging",
        r"links: veth[0-9a-f]+ \(veth, master cni-left\)",
        r"iptables: ip nat -A POSTROUTING -s 10\.9\.0\.2/32 .* -j CNI-[0-9a-f]{24}",
        r"iptables: ip6 nat -A POSTROUTING -s fd00:9::2/128 .* -j CNI-[0-9a-f]{24}",
        r"iptables: ip nat :CNI-[0-9a-f]{24}",
        r"iptables: ip nat :CNI-DN-[0-9a-f]+",
        r"iptables: ip nat -A CNI-HOSTPORT-DNAT .* -j CNI-DN-[0-9a-f]+",
        r"iptables: ip filter -A CNI-FORWARD -s 10\.9\.0\.2/32 -j ACCEPT",
        r"address reservations: /var/lib/cni/networks/lan/10\.9\.0\.2",
        r"run-time files: /run/cni/tuning/abc_eth0\.json",
    ):
        assert re.search(f"^{line}$", left, re.MULTILINE), f"{line} is not in\n{left}"
    for shared in (":CNI-HOSTPORT-MASQ", "-j CNI-FORWARD", "-A CNI-ISOLATION", "(bridge)", "last_reserved_ip"):
        assert shared not in left

    for plugin, config in reversed(chained):
        cni(docker_lab, "DEL", plugin, config)
    cni(docker_lab, "DEL", "bridge", bridge)
    docker_lab.run("ip", "netns", "delete", "staging")
    assert docker_lab.wait_clean(before) == ""

    rule = ["FORWARD", "-m", "comment", "--comment", "CNI firewall plugin rules", "-j", "CNI-FORWARD"]
    docker_lab.run("iptables", "-I", *rule)
    try:
        assert re.fullmatch("iptables: ip filter -A FORWARD .* -j CNI-FORWARD", leftovers(before, docker_lab.state()))
    finally:
        docker_lab.run("iptables", "-D", *rule)


def test_the_guard_names_containers_and_networks(docker_lab: Lab) -> None:
    """They are named and can be removed; links and rules that dockerd made for them may be named too."""
    before = docker_lab.state()
    docker_lab.docker("network", "create", "left-network")
    docker_lab.docker(
        "run",
        "--detach",
        "--name",
        "left",
        "--network",
        "left-network",
        "--publish",
        "81:80",
        "busybox",
        "sleep",
        "600",
    )
    left = docker_lab.wait_clean(before, timeout_s=0.2).splitlines()
    assert left[:2] == ["containers: left", "Docker networks: left-network"]
    assert all(
        re.fullmatch(r"(links: veth\S+ \(veth, master br-\S+\)|iptables: ip nat -A POSTROUTING .*)", line)
        for line in left[2:]
    )
    docker_lab.remove_leftovers(before)
    assert docker_lab.wait_clean(before) == ""


def test_the_guard_names_running_plugins(docker_lab: Lab) -> None:
    """A CNI plugin that still runs is reported with its command line."""
    before = docker_lab.state()
    docker_lab.write("/opt/cni/bin/slow", "#!/bin/sh\nsleep 600\n", mode=0o755)
    slow = docker_lab.spawn("/opt/cni/bin/slow")
    try:
        line = "running CNI plugins: /bin/sh /opt/cni/bin/slow"
        wait_until(lambda: leftovers(before, docker_lab.state()) == line, line)
    finally:
        slow.kill()
        slow.wait()
        docker_lab.remove("/opt/cni/bin/slow")


def test_the_guard_fails_a_test(tmp_path: Path) -> None:
    """A test that leaves something behind fails, with what it is and the logs; the next test is not affected."""
    (tmp_path / "stand_in.py").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        textwrap.dedent(f"""
            import sys, pytest
            from tests.system.conftest import *

            @pytest.fixture(scope="session")
            def daemon_command():
                return [sys.executable, "{tmp_path}/stand_in.py"]

            @pytest.fixture(scope="session")
            def cleanup_limit_s():
                return 0.5
        """),
        encoding="utf-8",
    )
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
            def test_litter(lab):
                lab.docker("run", "--detach", "--name", "left", "busybox", "sleep", "600")

            def test_clean(lab):
                assert lab.docker("ps", "--all", "--quiet") == ""

            def test_fresh_litter(fresh_lab):
                fresh_lab.run("ip", "link", "add", "leftlink", "type", "veth")
        """),
        encoding="utf-8",
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "--import-mode=importlib",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
    ]
    ended = subprocess.run([*command, str(tmp_path)], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert re.search(r"3 passed, 2 errors in", ended.stdout), ended.stdout
    assert "the test left behind:\ncontainers: left\n" in ended.stdout
    assert "the test left behind:\nlinks: leftlink (veth)\n" in ended.stdout
    assert ended.stdout.count(" log of dockerd, process ") == 2
    assert ended.stdout.count("API listen on /run/docker.sock") == 2
