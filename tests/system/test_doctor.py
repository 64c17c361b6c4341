# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-bridge doctor` finds faults that were planted on a real host, and its own commands fix them."""

import sys

import pytest

from cni_invoker.documents.jsontypes import JsonObject, as_object, get_objects, get_str, parse_json
from tests.lab import Lab, wait_until
from tests.system.calls import ask_status
from tests.system.scene import Scene, bridge, macvlan

DOCTOR = (sys.executable, "-m", "cnm_bridge", "doctor")


def examine(lab: Lab, *options: str) -> tuple[int, dict[str, JsonObject]]:
    """Run the command; return its exit status, and the findings that count by code."""
    done = lab.run(*DOCTOR, "--json", *options, check=False)
    report = as_object(parse_json(done.stdout.encode()), "the report")
    counting = [one for one in get_objects(report, "findings") if get_str(one, "severity") != "note"]
    return done.returncode, {get_str(one, "code"): one for one in counting}


def test_a_wrong_policy_of_forward(scene: Scene) -> None:
    """Docker's policy drops packets of a list without `firewall`; the command that is shown fixes it."""
    lab, subnet = scene.lab, scene.subnet()
    scene.configure(bridge(subnet)[:1], name="watched")
    lab.run("iptables", "-P", "FORWARD", "DROP")
    status, found = examine(lab)
    assert status == 1
    assert get_str(found["forward-dropped"], "subject") == "network watched"
    assert get_str(found["forward-dropped"], "severity") == "error"
    command = get_str(found["forward-dropped"], "fix")
    try:
        lab.run("sh", "-c", command)
        assert "forward-dropped" not in examine(lab)[1]
    finally:
        lab.run("sh", "-c", command.replace(" -I ", " -D "))


def test_a_healthy_network(scene: Scene) -> None:
    """With the plugin, before and after its first container, nothing counts; and nothing was changed."""
    lab, subnet = scene.lab, scene.subnet()
    name = scene.configure(bridge(subnet, ipv6=True))
    before = lab.state()
    assert examine(lab) == (0, {})
    assert lab.state() == before
    scene.run(scene.network(name))
    assert examine(lab) == (0, {})
    done = lab.run(*DOCTOR, "--quick")
    assert done.stdout.startswith("nothing found; examined: kernel, engine, firewall, daemon, ")
    assert f"network {name}" in done.stdout


@pytest.mark.long
def test_a_docker_network_with_docker_s_addresses(scene: Scene) -> None:
    """Docker accepts it, because it does not send the name, which leads to the list; its containers are refused."""
    lab = scene.lab
    scene.configure(bridge(scene.subnet()), name="watched")
    scene.adopt_network("watched")
    lab.docker("network", "create", "-d", "cni-bridge", "watched")
    status, found = examine(lab)
    assert status == 1
    assert get_str(found["docker-pool"], "subject") == "Docker network watched"
    text, _, consequence = get_str(found["docker-pool"], "text").rpartition(": ")
    assert consequence == "no container starts on it"
    assert text in scene.run_refusal("watched")
    lab.run("sh", "-c", get_str(found["docker-pool"], "fix"))
    assert examine(lab) == (0, {})
    scene.run("watched")


def test_a_docker_network_with_a_subnet_that_is_not_used(scene: Scene) -> None:
    """Without `--ipv6` Docker shows the subnet of IPv6, and assigns no address from it; containers start."""
    lab, subnet = scene.lab, scene.subnet()
    name = scene.configure(bridge(subnet))
    network = scene.docker_network(name, "--subnet", subnet.ipv4, "--subnet", "fd99::/64")
    assert examine(lab) == (0, {})
    scene.run(network)


@pytest.mark.long
def test_a_parent_that_is_gone(private_scene: Scene) -> None:
    """Doctor, check and the error of a start name it; none advises to restart the container, which runs on."""
    scene, lab = private_scene, private_scene.lab
    lab.run("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "nic0-end")
    (plugin,) = macvlan(scene.subnet())
    network = scene.network(scene.configure([{**plugin, "master": "nic0"}]))
    container = scene.run(network)
    assert examine(lab) == (0, {})
    lab.run("ip", "link", "del", "nic0")
    status, found = examine(lab)
    assert (status, list(found)) == (1, ["link-missing"])
    assert "the host has no link nic0, the master of plugin macvlan" in get_str(found["link-missing"], "text")
    checked = lab.run("cni-bridge", "inspect", "--check", container.name, check=False)
    assert (checked.returncode, "docker restart" in checked.stdout) == (1, False)
    assert "the host has no link nic0, the master of plugin macvlan" in checked.stdout
    assert f"without it, {container.name} would not start again" in checked.stdout
    assert "the host has no link nic0, the master of plugin macvlan; `ip link`" in scene.run_refusal(network)
    assert lab.docker("inspect", "--format", "{{.State.Running}}", container.name).strip() == "true"
    lab.run("ip", "link", "add", "nic0", "type", "veth", "peer", "name", "nic0-end")  # DEL needs it, too
    lab.docker("rm", "-f", container.name)
    wait_until(lambda: not get_objects(ask_status(lab), "endpoints"), "the DELs that had failed")
    lab.run("ip", "link", "del", "nic0")


def test_a_mistake_in_the_daemons_file(private_scene: Scene) -> None:
    """Commands that ask the daemon say what is wrong, and leave it out; for the doctor it is a finding."""
    lab = private_scene.lab
    lab.write("/etc/cni-bridge/config.toml", "plugin-timeot = 20\n")
    for command, status in (("doctor", 1), ("ls", 0), ("status", 0)):
        done = lab.run(sys.executable, "-m", "cnm_bridge", command, check=False)
        assert (done.returncode, "did you mean plugin-timeout?" in done.stderr) == (status, True)
    status, found = examine(lab)
    assert (status, list(found)) == (1, ["settings-invalid"])
    assert "did you mean plugin-timeout?" in get_str(found["settings-invalid"], "text")
    lab.remove("/etc/cni-bridge/config.toml")
    assert examine(lab) == (0, {})
