# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The recipes of docs/recipes.md work exactly as written; that with a compose file is in test_compose.py."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, as_object, get_str, parse_json
from tests.lab import Container
from tests.system.dhcp_lan import Lan
from tests.system.peer import HOST_IP, ask, outside, serving
from tests.system.scene import Scene, reaches

RECIPES = (Path(__file__).parents[2] / "docs" / "recipes.md").read_text("utf-8")
BLUE = "docker network create -d cni-bridge --ipam-driver null -o cni.network=blue blue"


def section(heading: str) -> str:
    """Return the text under a heading."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", RECIPES, re.MULTILINE | re.DOTALL)
    assert found is not None
    return found[1]


def commands(heading: str) -> Iterator[str]:
    """Return a recipe's commands."""
    for block in re.findall(r"^```console\n(.*?)^```", section(heading), re.MULTILINE | re.DOTALL):
        yield from (line.removeprefix("# ") for line in block.splitlines())


@pytest.fixture
def recipes(scene: Scene) -> Scene:
    """A scene with the configurations of the document."""
    for block in re.findall(r"^```json\n(.*?)^```", RECIPES, re.MULTILINE | re.DOTALL):
        document: JsonObject = as_object(parse_json(block.encode()), "a recipe's configuration")
        scene.file(f"{get_str(document, 'name')}.conflist", block)
    return scene


def addresses(container: Container) -> list[str]:
    """Return a container's addresses without their prefixes."""
    return [str(address.ip) for address in container.link().addresses]


def test_a_static_address(recipes: Scene) -> None:
    """Both commands give the container its address."""
    for command in commands("A static address"):
        recipes.shell(command)
    assert addresses(recipes.lab.container("db")) == ["10.22.0.9"]
    assert addresses(recipes.lab.container("db2")) == ["10.22.0.10"]
    assert reaches(recipes.lab.container("db"), "10.22.0.10")


def test_published_ports(recipes: Scene) -> None:
    """Other hosts reach the port only with the recipe's rule; `outside` has the same rule, which is removed first."""
    run, rule = commands("Published ports")
    recipes.shell(BLUE)
    recipes.shell(run.replace("httpd -f -p 80", "sleep 3600"))
    web = recipes.lab.container("web")
    with outside(recipes.lab) as there, serving(recipes.lab, web, 80):
        same = rule.replace("-I", "-D").split()
        recipes.lab.run(*same)  # `outside` made it
        assert ask(recipes.lab, None, "127.0.0.1", 8080) == "web"
        assert ask(recipes.lab, there, HOST_IP, 8080) is None
        recipes.shell(rule)
        assert ask(recipes.lab, there, HOST_IP, 8080) == "web"


def test_a_bandwidth_limit(recipes: Scene) -> None:
    """Each direction has a token bucket, one of them on an ifb link."""
    recipes.shell(BLUE)
    for command in commands("A bandwidth limit"):
        recipes.shell(command)
    found = recipes.lab.run("tc", "qdisc", "show").stdout
    assert re.search(r"tbf .* rate 10Mbit ", found)
    assert re.search(r"tbf .* dev bwp\w+ .* rate 2Mbit ", found)


def test_macvlan(recipes: Scene) -> None:
    """The container has its address and MAC, and reaches the LAN."""
    for command in commands("macvlan on a LAN"):
        recipes.shell(command)
    printer = recipes.lab.container("printer")
    assert addresses(printer) == ["192.168.22.210"]
    assert printer.link().mac == "02:11:22:33:44:55"
    lan = f"{Scene.UPLINK}-end"
    recipes.lab.run("ip", "address", "add", "192.168.22.1/24", "dev", lan)
    assert reaches(printer, "192.168.22.1")


@pytest.mark.usefixtures("sandbox_before_join")
def test_dhcp_on_a_lan(recipes: Scene) -> None:
    """The container has a lease, and the same address after a restart."""
    lan = Lan(recipes.lab, recipes.subnet())
    try:
        lan.start_daemon()
        lan.start_server()
        for command in commands("DHCP on a LAN"):
            recipes.shell(command)
        camera = recipes.lab.container("camera")
        before = addresses(camera)
        assert lan.leases() == before
        recipes.lab.docker("restart", "-t", "0", "camera")
        assert addresses(camera) == before
    finally:
        lan.close()


@pytest.mark.usefixtures("sandbox_before_join")
def test_a_vrf(recipes: Scene) -> None:
    """The link is in the VRF. A kernel without VRF makes the plugin fail with an error that the documents explain."""
    create, run = commands("A VRF")
    recipes.shell(create)
    has_vrf = recipes.lab.run("ip", "link", "add", "probe", "type", "vrf", "table", "99", check=False).returncode == 0
    if not has_vrf:
        refusal = recipes.run_refusal("tenant")
        assert "could not add VRF" in refusal
        pytest.skip("this kernel has no VRF: only the refusal was tested")
    recipes.lab.run("ip", "link", "del", "probe")
    recipes.shell(run)
    assert recipes.lab.docker("exec", "t1", "readlink", "/sys/class/net/eth0/master").strip().endswith("/tenant")


@pytest.mark.usefixtures("sandbox_before_join")
def test_identity_as_in_kubernetes(recipes: Scene) -> None:
    """The container with the labels starts, and another one is refused."""
    for command in commands("Identity as in Kubernetes"):
        recipes.shell(command)
    assert addresses(recipes.lab.container("pod1"))
    assert "is not a pod's sandbox" in recipes.run_refusal("pods")


@pytest.mark.addresses_in_docker
def test_ipv6(recipes: Scene) -> None:
    """The container has addresses of both families, and Docker shows both."""
    for command in commands("IPv6"):
        recipes.shell(command)
    six = recipes.lab.container("six")
    assert "fd23::9" in addresses(six)
    assert len(six.endpoint("dual").addresses) == 2
    assert reaches(six, "fd23::1")
