# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin that behaves like Calico without Kubernetes (`tests/plugins/calico.py`), with the list of docs/hosts.md."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, parse_json
from tests.lab import Container, wait_until
from tests.pages import read_blocks
from tests.system.calls import ask_status
from tests.system.scene import Scene, reaches

pytestmark = pytest.mark.usefixtures("sandbox_before_join")

_PLUGIN: Final = Path(__file__).parents[1] / "plugins" / "calico.py"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "hosts.md"
_NODENAME: Final = "/run/calico/nodename"
_LINKS_OF_CALICO: Final = ("DOCKER-USER", "-i", "cali+", "-j", "ACCEPT")
"""felix accepts what its policies allow."""
LABELS: Final = ("--label", "tier=front", "--label", "other=x")


@pytest.fixture(name="scene")
def make_scene(private_scene: Scene) -> Iterator[Scene]:
    """A host with the plugin, a default route, which makes the kernel answer ARP for 169.254.1.1, and the list."""
    scene = private_scene
    for name in ("calico", "calico-ipam"):
        scene.lab.write(f"/opt/cni/bin/{name}", _PLUGIN.read_text(), mode=0o755)
        scene.adopt_file(f"/opt/cni/bin/{name}")
    scene.lab.write(_NODENAME, "node1")
    (block,) = read_blocks(_PAGE, "json", section="Calico")
    scene.file("10-calico.conflist", as_object(parse_json(block.text.encode()), "list"))
    scene.lab.run("ip", "link", "add", "world0", "type", "bridge")
    scene.lab.run("ip", "address", "add", "192.0.2.1/24", "dev", "world0")
    scene.lab.run("ip", "link", "set", "world0", "up")
    scene.lab.run("ip", "route", "add", "default", "via", "192.0.2.254")
    scene.lab.run("iptables", "-I", *_LINKS_OF_CALICO)
    yield scene
    scene.lab.run("iptables", "-D", *_LINKS_OF_CALICO)
    scene.lab.run("ip", "link", "delete", "world0")


def make_network(scene: Scene, mode: str) -> str:
    """Type the command of the page, with a mode."""
    (block,) = read_blocks(_PAGE, section="Calico")
    assert "cni.attach=sandbox" in block.text
    scene.shell(block.text.replace("cni.attach=sandbox", f"cni.attach={mode}"))
    return "calico"


def stored(scene: Scene, what: str) -> list[str]:
    """Return the files of what the datastore would have: endpoints or addresses."""
    return sorted(scene.lab.run("sh", "-c", f"cd /run/calico/{what} 2>/dev/null && ls", check=False).stdout.split())


def endpoint(scene: Scene, container: Container) -> JsonObject:
    """Return what the plugin has stored for a container: the one with the MAC of its link."""
    mac = container.link().mac
    files = (scene.lab.read(f"/run/calico/endpoints/{name}") for name in stored(scene, "endpoints"))
    (found,) = (one for one in map(json.loads, files) if one["mac"] == mac)
    return as_object(found, "endpoint")


@pytest.mark.long
@pytest.mark.parametrize("mode", ["move", "sandbox"])
def test_containers_reach_each_other(scene: Scene, mode: str) -> None:
    """With a /32 each and the MAC that felix knows, also after a kill and a restart; policy gets the labels."""
    lab = scene.lab
    before = lab.state()
    network = make_network(scene, mode)
    one, other = scene.run(network, *LABELS), scene.run(network)
    for container in (one, other):
        (address,) = (str(found) for found in container.link().addresses if found.version == 4)
        assert address.endswith("/32")
        shown = [str(found) for found in container.endpoint(network).addresses]
        assert shown == [address]
    told = [] if mode == "move" else [{"key": "tier", "value": "front"}]
    assert endpoint(scene, one)["labels"] == told
    assert endpoint(scene, other)["labels"] == []
    lab.restart_daemon(signal.SIGKILL)
    lab.docker("restart", "--time", "0", one.name)
    assert endpoint(scene, one)["labels"] == told
    (address,) = (str(found.ip) for found in other.link().addresses if found.version == 4)
    assert reaches(one, address)
    lab.docker("rm", "--force", one.name, other.name)
    wait_until(lambda: stored(scene, "endpoints") == stored(scene, "addresses") == [], "the end of DEL", 30)
    lab.docker("network", "rm", network)
    assert not lab.wait_clean(before)


def test_a_chosen_address(scene: Scene) -> None:
    """The IPAM plugin gives it; the link has it as /32."""
    network = make_network(scene, "sandbox")
    container = scene.run(f"name={network},driver-opt=cni.ips=10.65.0.40")
    assert [str(found) for found in container.link().addresses if found.version == 4] == ["10.65.0.40/32"]
    refusal = scene.run_refusal(network, "--mac-address", "02:00:00:00:00:05")
    assert "plugin calico of CNI configuration calico does not allow to choose a MAC" in refusal


@pytest.mark.long
def test_the_agent_is_not_there(scene: Scene) -> None:
    """Without `nodename` a container is refused with a plugin's text, and a DEL is done when it is back."""
    network = make_network(scene, "sandbox")
    container = scene.run(network)
    scene.lab.remove(_NODENAME)
    assert "resource does not exist: Node(" in scene.run_refusal(network)
    scene.lab.docker("rm", "--force", container.name)
    assert stored(scene, "endpoints")
    scene.lab.write(_NODENAME, "node1")
    # The refused endpoint has nothing stored, but its DEL failed, too, and needs the plugin once more.
    wait_until(lambda: not get_objects(ask_status(scene.lab), "endpoints"), "the end of both endpoints", 60)
    assert stored(scene, "endpoints") == stored(scene, "addresses") == []
