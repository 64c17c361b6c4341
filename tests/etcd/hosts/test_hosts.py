# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Two Docker hosts with one etcd never assign an address twice, with our driver and with Docker's own `bridge`."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from tests.etcd.node import PLUGIN as INSTALLED
from tests.lab import CommandFailed, Container, Engine, Lab, wait_until
from tests.lab.fetch import fetch_program
from tests.managed_plugin.swarm import NODES, two_labs
from tests.pages import read_blocks
from tests.system.scene import Scene

pytestmark = pytest.mark.timeout(600)  # the first test starts two hosts

PAGE: Final = Path(__file__).parents[3] / "docs/ipam.md"
PLUGIN: Final = "/opt/cni/bin/cni-ipam-etcd"
SETTINGS: Final = "/etc/cni/cni-ipam-etcd.json"
SUBNET: Final = "10.34.0.0/24"
IPAM: Final[JsonObject] = {
    "type": "cni-ipam-etcd",
    "ranges": [[{"subnet": SUBNET, "rangeStart": "10.34.0.10", "rangeEnd": "10.34.0.17"}]],
    "exclude": ["10.34.0.14/31"],
}
ALL: Final = {f"10.34.0.{host}" for host in (10, 11, 12, 13, 16, 17)}


@pytest.fixture(scope="module")
def labs(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Lab]]:
    """Two hosts with the daemon; the first one has an etcd."""
    with two_labs(engine) as labs:
        url = f"http://{NODES[0]}:2379"
        command = (str(fetch_program("etcd")), f"--data-dir={tmp_path_factory.mktemp('etcd')}", "--log-level=error")
        etcd = labs[0].spawn(*command, "--listen-client-urls=http://0.0.0.0:2379", f"--advertise-client-urls={url}")
        for number, lab in enumerate(labs):
            lab.start_daemon()
            lab.run("sh", "-ec", f"mkdir -p {Path(PLUGIN).parent}; ln -s {INSTALLED} {PLUGIN}")
            lab.write(SETTINGS, {"endpoints": [url], "node": f"node{number}"})
            wait_until(lambda lab=lab: is_answering(lab, url), "etcd", poll_s=0.1)  # type: ignore[misc]
        yield labs
        etcd.kill()
        etcd.wait()


@pytest.fixture
def scenes(labs: Sequence[Lab], guard: Callable[[Lab], Iterator[Lab]]) -> Iterator[Sequence[Scene]]:
    """A scene on each host; no address is reserved in the end."""
    with ExitStack() as stack:
        for lab in labs:
            stack.enter_context(contextmanager(guard)(lab))
        yield [stack.enter_context(Scene(lab)) for lab in labs]
    wait_until(lambda: not reserved(labs[0]), "no address is reserved")


def is_answering(lab: Lab, url: str) -> bool:
    """Return whether etcd answers a host."""
    return lab.run("busybox", "wget", "-qO-", f"{url}/health", check=False).returncode == 0


def reserved(lab: Lab) -> dict[str, str]:
    """Return the addresses that are reserved in the cluster, with the node that has each."""
    lines = lab.run(PLUGIN, "list").stdout.splitlines()[1:]
    return {address: node for _, address, node, *_ in map(str.split, lines)}


def address_of(container: Container) -> str:
    """Return the container's IPv4 address."""
    (address,) = (str(one.ip) for one in container.link().addresses if one.version == 4)
    return address


def with_ours(scene: Scene) -> str:
    """A network of our driver, whose list has the section."""
    plugin: JsonObject = {"type": "bridge", "bridge": "cluster1", "ipam": IPAM}
    return scene.network(scene.configure([plugin], "shared"))


def with_docker_s(scene: Scene) -> str:
    """A network of Docker's `bridge`, whose IPAM driver uses the section."""
    scene.file("shared.ipam", {"cniVersion": "1.1.0", "name": "shared", "ipam": IPAM})
    options = ("-d", "bridge", "--subnet", SUBNET, "--ipam-driver", "cni-bridge", "--ipam-opt", "cni.ipam=shared")
    return scene.builtin_network(*options)


@pytest.mark.parametrize("make_network", [with_ours, with_docker_s])
def test_an_address_has_one_host(scenes: Sequence[Scene], make_network: Callable[[Scene], str]) -> None:
    """Six containers on two hosts have the six addresses; what one host releases, the other one assigns."""
    labs = [scene.lab for scene in scenes]
    networks = [make_network(scene) for scene in scenes]
    boxes = [(number, scenes[number].run(networks[number])) for number in (0, 1) * 3]
    owners = {address_of(box): f"node{number}" for number, box in boxes}
    assert set(owners) == ALL
    assert reserved(labs[1]) == owners
    for scene, network in zip(scenes, networks, strict=True):
        assert "all 6 addresses of 10.34.0.10-10.34.0.17 on network shared are assigned" in scene.run_refusal(network)

    _, released = boxes[0]
    address = address_of(released)
    if make_network is with_docker_s:
        assert f"{address} is assigned to" in scenes[1].run_refusal(networks[1], "--ip", address)
    labs[0].docker("rm", "--force", released.name)
    wait_until(lambda: address not in reserved(labs[1]), "the release")
    assert address_of(scenes[1].run(networks[1])) == address
    assert reserved(labs[0]) == {**owners, address: "node1"}


def test_a_node_that_is_gone(scenes: Sequence[Scene]) -> None:
    """Its addresses stay reserved; the operator of another node may release them, while it is alive only by force."""
    labs = [scene.lab for scene in scenes]
    networks = [with_ours(scene) for scene in scenes]
    address = address_of(scenes[1].run(networks[1]))
    release = (PLUGIN, "release", "--node", "node1")
    with pytest.raises(CommandFailed, match="node1 is alive"):
        labs[0].run(*release)
    assert reserved(labs[0]) == {address: "node1"}
    assert f"released {address} on network shared" in labs[0].run(*release, "--force").stdout
    assert reserved(labs[0]) == {}


def test_no_process_is_started(scenes: Sequence[Scene]) -> None:
    """The daemon runs the plugin itself: addresses of the IPAM driver come and go without its executable."""
    scene, away = scenes[0], f"{PLUGIN}.away"
    scene.lab.run("mv", PLUGIN, away)
    try:
        container = scene.run(with_docker_s(scene))
        assert reserved(scenes[1].lab) == {address_of(container): "node0"}
        scene.lab.docker("rm", "--force", container.name)
        wait_until(lambda: not reserved(scenes[1].lab), "the release")
    finally:
        scene.lab.run("mv", away, PLUGIN)


def test_the_recipe(scenes: Sequence[Scene]) -> None:
    """The container has an address of the range, and the reservation names it."""
    scene, lab = scenes[0], scenes[0].lab
    (block,) = (one for one in read_blocks(PAGE, section="Addresses unique in a cluster") if one.reason is None)
    settings = lab.read(SETTINGS)
    try:
        printed = scene.shell(block.text)
        address = address_of(lab.container("web"))
        assert re.fullmatch(r"10\.33\.0\.(1[0-9]|[2-9][0-9]|1[01][0-9]|12[0-7])", address)
        assert re.search(rf"^cluster +{re.escape(address)} +\S+ +\S+ +eth0 +20", printed, re.MULTILINE)
    finally:
        scene.shell("docker rm -f web; docker network rm cluster; ip link delete cluster0")
        wait_until(lambda: not reserved(lab), "the release, for which these settings are needed")
        lab.remove("/etc/cni/net.d/cluster.conflist")
        lab.write(SETTINGS, settings)
