# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins that run in the sandbox learn who the container is (Engine 28 and newer)."""

import json
import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from cni_bridge_spec import JsonObject, as_object, get_object, get_objects
from tests.lab import PLUGIN_SOCKET, wait_until
from tests.system.plugin_lists import PORTMAP
from tests.system.ports import published
from tests.system.scene import Scene, bridge

STARTS = 20
PROJECT, SERVICE = "com.docker.compose.project", "com.docker.compose.service"
WAITING = 4
LISTEN = """
import os, socket, sys, time
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
os.dup2(listening.detach(), 3)
os.set_inheritable(3, True)
while not os.path.exists("/run/go"):
    time.sleep(0.01)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Listens before the daemon starts, like systemd."""
RECORD = """
mkdir -p /run/who
python3 -c 'import json, os, sys
document = json.load(sys.stdin)
if os.environ["CNI_COMMAND"] == "ADD":
    with open("/run/who/" + os.environ["CNI_CONTAINERID"], "w") as file:
        json.dump({"args": os.environ.get("CNI_ARGS", ""), "stdin": document}, file)
    print(json.dumps(document["prevResult"]))'
"""
"""A plugin at the end of a list that stores what its ADD received."""

pytestmark = pytest.mark.usefixtures("sandbox_before_join")


@pytest.fixture(name="network")
def make_network(private_scene: Scene) -> str:
    """Make a CNI configuration whose last plugin stores what it receives; return its name."""
    private_scene.plugin("who", RECORD)
    return private_scene.configure([*bridge(private_scene.subnet()), {"type": "who"}])


def received(scene: Scene) -> list[JsonObject]:
    """Return what the plugin received, for each container."""
    files = scene.lab.run("sh", "-c", "cat /run/who/* 2>/dev/null", check=False).stdout
    return [as_object(json.loads(line), "record") for line in files.replace("}{", "}\n{").splitlines()]


def entries(log: str, event: str) -> list[JsonObject]:
    """Return the entries of the daemon's log with an event."""
    lines, _, _ = log.rpartition("\n")
    found = (as_object(json.loads(line), "entry") for line in lines.splitlines())
    return [entry for entry in found if entry.get("event") == event]


def log_of(scene: Scene) -> str:
    """Return the daemon's log."""
    assert scene.lab.daemon is not None
    return scene.lab.daemon.log()


def arguments(record: JsonObject) -> Mapping[str, str]:
    """Return CNI_ARGS as a mapping."""
    return dict(pair.split("=", 1) for pair in str(record["args"]).split(";"))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["hybrid", "direct"])
def test_parallel_starts(private_scene: Scene, network: str, mode: str) -> None:
    """Each container's plugins receive its own name, whichever of them starts first."""
    scene = private_scene
    name = scene.network(network, "-o", "cni.identity=docker", mode=mode)
    created = [scene.create(name, "--label", f"number={number}") for number in range(STARTS)]
    with ThreadPoolExecutor(STARTS) as pool:
        list(pool.map(lambda one: scene.lab.docker("start", one), created))
    given = {arguments(one)["DOCKER_CONTAINER_NAME"]: arguments(one)["DOCKER_CONTAINER_ID"] for one in received(scene)}
    assert given == {one: scene.lab.docker("inspect", "--format", "{{.Id}}", one) for one in created}


@pytest.mark.smoke
def test_selected_labels(private_scene: Scene, network: str) -> None:
    """Plugins receive those that the network names, and no others."""
    scene = private_scene
    options = ("-o", "cni.identity=docker", "-o", "cni.identity-required=true", "-o", "cni.identity-labels=app*")
    name = scene.network(network, "-o", "cni.attach=sandbox", *options)
    container = scene.run(name, "--label", "app=shop", "--label", "secret=x")
    (record,) = received(scene)
    assert arguments(record)["DOCKER_CONTAINER_NAME"] == container.name
    stdin = as_object(record["stdin"], "configuration")
    cni = as_object(as_object(stdin["args"], "args")["cni"], "cni")
    assert list(get_objects(cni, "labels")) == [{"key": "app", "value": "shop"}]


@pytest.mark.long
def test_the_end_of_a_container_that_shares_the_sandbox(private_scene: Scene) -> None:
    """It is not the end of the owner, whose ports are revoked when another network becomes its gateway."""
    scene, lab = private_scene, private_scene.lab
    owner = scene.run(scene.builtin_network("--internal"), "-p", "8080:80")
    partner = scene.run(f"container:{owner.name}")
    subnet = scene.subnet()
    ours = scene.network(scene.configure([*bridge(subnet), PORTMAP]), mode="direct")
    link = ("--driver-opt", "com.docker.network.endpoint.ifname=lan0")
    lab.docker("network", "connect", *link, ours, owner.name)
    assert published(scene) == ["8080->80/tcp"]
    lab.docker("rm", "--force", partner.name)
    lab.docker("network", "connect", "--gw-priority=1", scene.builtin_network(), owner.name)
    assert "endpoint.ports_revoked" in log_of(scene)


@pytest.mark.moves("a container in the host's PID namespace has no first process")
@pytest.mark.long
def test_a_required_identity_that_is_not_known(private_scene: Scene, network: str) -> None:
    """The container does not start, and nothing is left; without the requirement it starts."""
    scene = private_scene
    required = ("-o", "cni.identity=docker", "-o", "cni.identity-required=true")
    assert "in mode move" in scene.creation_refusal(
        "--ipam-driver=null", "-o", f"cni.network={network}", "-o", "cni.attach=move", *required
    )
    hidden = scene.network(network, "-o", "cni.attach=sandbox", *required)
    before = scene.lab.state()
    assert "the container's identity is not known" in scene.run_refusal(hidden, "--pid=host")
    assert scene.lab.wait_clean(before) == ""
    scene.run(scene.network(network, "-o", "cni.attach=sandbox", "-o", "cni.identity=docker"), "--pid=host")
    assert [str(one["args"]) for one in received(scene)] == [""]


@pytest.mark.long
def test_calls_that_wait_at_the_socket(private_scene: Scene, network: str, daemon_command: Sequence[str]) -> None:
    """The first calls after a start of the daemon come before it has looked at the engine, which does not boot."""
    scene, lab = private_scene, private_scene.lab
    required = ("-o", "cni.identity=docker", "-o", "cni.identity-required=true")
    names = [scene.network(network, *required, mode="direct") for _ in range(WAITING)]
    created = [scene.create(name) for name in names]  # dockerd makes one call at a time for each network
    lab.stop_daemon()
    with ThreadPoolExecutor() as pool:
        daemon = pool.submit(lab.start_daemon, command=(sys.executable, "-c", LISTEN, PLUGIN_SOCKET, *daemon_command))
        wait_until(lambda: lab.path(PLUGIN_SOCKET).exists(), "the socket")
        starts = [pool.submit(lab.docker, "start", one) for one in created]
        shown = ("ss", "--no-header", "--listening", "--unix", "src", PLUGIN_SOCKET)
        wait_until(lambda: int(lab.run(*shown).stdout.split()[2]) >= WAITING, "calls that wait")
        lab.write("/run/go", "")
        daemon.result()
        for start in starts:
            start.result()
    assert {arguments(one)["DOCKER_CONTAINER_NAME"] for one in received(scene) if one["args"]} == {*created}


@pytest.mark.long
@pytest.mark.moves("dockerd boots, so the networks of a container are not known")
def test_restart_policies(private_scene: Scene, network: str) -> None:
    """After a restart of dockerd and the daemon all containers are back, with their identities."""
    scene, lab = private_scene, private_scene.lab
    known = ("-o", "cni.attach=sandbox", "-o", "cni.identity=docker", "-o", "cni.identity-labels=number")
    optional = scene.network(network, *known)
    labelled = [("--label", f"number={number}") for number in range(STARTS + 1)]
    started = [scene.run(optional, "--restart=always", *label) for label in labelled[1:]]
    required = scene.network(network, *known, "-o", "cni.identity-required=true")
    started.insert(0, scene.run(required, "--restart=always", *labelled[0]))
    before = identities(scene)
    assert sorted(before) == sorted(container.name for container in started)
    for _ in range(2):  # the daemon's restart ends before or during the boot
        lab.stop_dockerd()
        lab.run("sh", "-c", "rm /run/who/*")
        with ThreadPoolExecutor(1) as pool:
            restarted = pool.submit(lab.restart_daemon, signal.SIGKILL)
            lab.start_dockerd()
            restarted.result()
        assert len({container.link().addresses for container in started}) == len(started)
        assert identities(scene) == before
        assert not entries(log_of(scene), "endpoint.unidentified")


def identities(scene: Scene) -> Mapping[str, tuple[Mapping[str, str], Sequence[JsonObject]]]:
    """Return the arguments and labels that the plugin received, by container."""
    found = {}
    for record in received(scene):
        cni = get_object(get_object(get_object(record, "stdin"), "args"), "cni")
        found[arguments(record)["DOCKER_CONTAINER_NAME"]] = arguments(record), get_objects(cni, "labels")
    return found
