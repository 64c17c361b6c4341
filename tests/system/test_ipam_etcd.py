# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker networks whose addresses come from etcd: the recipe of docs/ipam.md, and Docker's own driver."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from tests.lab import Container, Lab, wait_until
from tests.lab.fetch_etcd import FetchError, fetch_etcd
from tests.pages import read_blocks
from tests.system.scene import Scene

PAGE: Final = Path(__file__).parents[2] / "docs/ipam.md"
PLUGIN: Final = "/opt/cni/bin/cni-ipam-etcd"
SETTINGS: Final = "/etc/cni/cni-ipam-etcd.json"


@pytest.fixture(scope="module")
def shared_lab(default_lab: Lab) -> Lab:
    """The lab of `scene`: the recipe is for a daemon with its default settings."""
    return default_lab


@pytest.fixture(name="etcd", autouse=True)
def start_etcd(scene: Scene, tmp_path: Path) -> Iterator[None]:
    """An etcd on the host; nothing is reserved there at the end."""
    try:
        server = fetch_etcd()
    except FetchError as exc:
        pytest.skip(f"etcd cannot be had: {exc}")
    etcd = scene.lab.spawn(str(server), f"--data-dir={tmp_path}", "--log-level=error")
    try:
        ready = ("busybox", "wget", "-qO-", "http://127.0.0.1:2379/health")
        wait_until(lambda: scene.lab.run(*ready, check=False).returncode == 0, "etcd", poll_s=0.1)
        scene.shell(f"mkdir -p /opt/cni/bin; ln -s $(command -v cni-ipam-etcd) {PLUGIN}")
        scene.lab.write(SETTINGS, {"endpoints": ["http://127.0.0.1:2379"]})
        yield
        wait_until(lambda: len(listed(scene)) == 1, "nothing is reserved")
    finally:
        for path in (PLUGIN, SETTINGS):
            scene.lab.remove(path)
        etcd.kill()
        etcd.wait()


def listed(scene: Scene) -> list[str]:
    """Return the lines of the list of reservations, of which the first has the names of the columns."""
    return scene.shell("cni-ipam-etcd list").splitlines()


def address_of(container: Container) -> str:
    """Return the container's IPv4 address."""
    (address,) = (str(one.ip) for one in container.link().addresses if one.version == 4)
    return address


def test_the_recipe(scene: Scene) -> None:
    """The container has an address of the range, and the reservation names it."""
    (block,) = (one for one in read_blocks(PAGE, section="Addresses unique in a cluster") if one.reason is None)
    try:
        printed = scene.shell(block.text)
        address = address_of(scene.lab.container("web"))
        assert re.fullmatch(r"10\.33\.0\.(1[0-9]|[2-9][0-9]|1[01][0-9]|12[0-7])", address)
        assert re.search(rf"^cluster +{re.escape(address)} +\S+ +\S+ +eth0 +20", printed, re.MULTILINE)
    finally:
        scene.shell("docker rm -f web; docker network rm cluster; ip link delete cluster0")
        scene.lab.remove("/etc/cni/net.d/cluster.conflist")


def test_docker_s_own_driver(scene: Scene) -> None:
    """A file with an IPAM section gives `bridge` addresses, also a requested one, and `docker rm` releases them."""
    ipam: JsonObject = {"type": "cni-ipam-etcd", "subnet": "10.34.0.0/24"}
    scene.file("own.ipam", {"cniVersion": "1.1.0", "name": "own", "ipam": ipam})
    options = ("-d", "bridge", "--subnet", "10.34.0.0/24", "--ipam-driver", "cni-bridge", "--ipam-opt", "cni.ipam=own")
    network = scene.builtin_network(*options)
    boxes = [scene.run(network, "--ip", "10.34.0.77"), scene.run(network)]
    found = set(map(address_of, boxes))
    assert "10.34.0.77" in found
    assert {line.split()[1] for line in listed(scene)[1:]} == found
    scene.lab.docker("rm", "--force", *(box.name for box in boxes))
    wait_until(lambda: len(listed(scene)) == 1, "both are released")
