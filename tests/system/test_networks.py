# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Networks: how they are bound to configurations, and which are refused."""

import re
import sys
from ipaddress import ip_network

import pytest

from cni_bridge_spec import JsonObject, JsonValue, get_objects
from tests.system.calls import ask_status, wait_torn_down
from tests.system.scene import LISTS, Scene, bridge, reaches, wait_logged


@pytest.mark.smoke
def test_bound_by_name(scene: Scene) -> None:
    """Without the option, the configuration of the network's own name is used, even right after its creation."""
    subnet = scene.subnet()
    network = scene.network(None, name=scene.configure(bridge(subnet)))
    assert reaches(scene.run(network), subnet.gateway)


def test_a_changed_configuration_applies_to_the_next_container(scene: Scene) -> None:
    """It is used at once, and the old one still deletes the attachments that it made, until when `ls` shows it."""
    old, new = scene.subnet(), scene.subnet()
    name = scene.configure(bridge(old))
    network = scene.network(name)
    before = scene.lab.state()
    first = scene.run(network)
    scene.configure(bridge(new), name=name)
    second = scene.run(network)
    assert first.link().addresses[0].ip in ip_network(old.ipv4)
    assert second.link().addresses[0].ip in ip_network(new.ipv4)
    listed = ("cni-bridge", "ls", "--networks")
    assert "since 1 endpoint was made" in scene.lab.run(*listed).stdout
    scene.lab.docker("rm", "-f", first.name)
    wait_torn_down(scene.lab)
    assert "since 1 endpoint" not in scene.lab.run(*listed).stdout
    scene.lab.docker("rm", "-f", second.name)
    assert scene.lab.wait_clean(before) == ""


def test_a_removed_configuration(scene: Scene) -> None:
    """A container whose configuration was removed can be deleted completely, and no new one can start."""
    name = scene.configure(bridge(scene.subnet()))
    network = scene.network(name)
    before = scene.lab.state()
    container = scene.run(network)
    scene.lab.remove(f"/etc/cni/net.d/{name}.conflist")
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before) == ""
    assert f'no net configuration with name "{name}"' in scene.run_refusal(network)


def test_no_configuration_of_the_networks_name(scene: Scene) -> None:
    """A container on such a network does not start; the error names the option that binds a network."""
    scene.configure(bridge(scene.subnet()))
    network = scene.network(None, name="nameless")
    error = scene.run_refusal(network)
    assert 'no net configuration with name "nameless"' in error
    assert "-o cni.network=NAME" in error


BAD_KEYS: dict[str, tuple[JsonObject, str]] = {
    "host bits": ({"ipam": {"type": "host-local", "subnet": "10.97.1.5/24"}}, "the subnet is 10.97.1.0/24"),
    "no prefix": ({"ipam": {"type": "host-local", "subnet": "10.97.1.0"}}, "with the length of its prefix"),
    "text for a boolean": ({"isGateway": "true"}, '"isGateway" must be true or false, without quotes'),
    "long name": ({"bridge": "a-bridge-of-17-ch"}, "1 to 15 bytes"),
    "another case": ({"IPAM": {"type": "host-local", "subnet": "10.97.1.0/24"}}, '"IPAM" must be written "ipam"'),
}


@pytest.mark.parametrize("case", BAD_KEYS)
@pytest.mark.representatives("host bits")
def test_values_that_a_plugin_would_refuse(scene: Scene, case: str) -> None:
    """They are refused when the network is made, with key and remedy, by docker's command and by ours."""
    keys, words = BAD_KEYS[case]
    name = scene.configure([{"type": "bridge", "bridge": "cni-bad0", **keys}])
    before = scene.lab.state()
    assert words in scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={name}")
    made = scene.lab.run(sys.executable, "-m", "cnm_bridge", "network", "create", name, check=False)
    assert made.returncode == 1
    assert words in " ".join(made.stderr.split())
    assert scene.lab.wait_clean(before) == ""


def test_a_list_that_makes_no_link(scene: Scene) -> None:
    """The container does not start; the error names the list."""
    name = scene.configure([{"type": "loopback"}])
    error = scene.run_refusal(scene.network(name))
    assert f"{name} made no link" in error
    assert "only lo" in error


def test_failing_plugin(scene: Scene) -> None:
    """Its message, code and details reach the user, its standard error does not; the plugins before it are undone."""
    scene.plugin(
        "grumpy",
        """
        [ "$CNI_COMMAND" = ADD ] || exit 0
        echo "the cable is not in" >&2
        echo '{"cniVersion": "1.0.0", "code": 117, "msg": "no carrier", "details": "port 3"}'
        exit 1
        """,
    )
    network = scene.network(scene.configure([*LISTS["bridge dual stack"](scene.subnet()), {"type": "grumpy"}]))
    before = scene.lab.state()
    error = scene.run_refusal(network)
    for part in ('"grumpy" failed (add)', "no carrier", "117", "port 3"):
        assert part in error
    assert "cable" not in error
    assert scene.lab.wait_clean(before) == ""


RENAMED = "import json, sys; c = json.load(sys.stdin); c['ipam']['type'] = 'host-local'; c['type'] = 'bridge'"
"""The beginning of a program in Python that turns its input into a configuration of `bridge` with `host-local`."""


@pytest.mark.parametrize("versions", [{"cniVersion": "1.0.0"}, {"cniVersions": ["0.4.0", "1.0.0"]}])
@pytest.mark.representatives("versions1")
def test_an_ipam_type_without_executable(scene: Scene, versions: JsonObject) -> None:
    """The plugin may use the name for itself; the log and `explain` warn, and the container starts."""
    scene.plugin("vnet", f"""python3 -c "{RENAMED}; print(json.dumps(c))" | /usr/lib/cni/bridge""")
    subnet = scene.subnet()
    ipam: JsonObject = {"type": "azure-cns", "ranges": [[{"subnet": subnet.ipv4}]]}
    name = f"azure{subnet.number}"
    plugins: JsonValue = [{"type": "vnet", "bridge": subnet.bridge, "ipam": ipam}]
    scene.file(f"{name}.conflist", {"name": name, **versions, "plugins": plugins})
    network = scene.network(name)
    assert "azure-cns (ipam): not found in " in wait_logged(scene.lab, "configuration.guessed")
    scene.run(network)
    explained = scene.lab.run(sys.executable, "-m", "cnm_bridge", "explain", network).stdout
    assert "right if vnet does not execute it" in explained


def test_the_bridge_of_a_removed_network(private_scene: Scene) -> None:
    """No plugin removes it; the next network with its subnet is refused, with the command that removes the bridge."""
    scene = private_scene
    subnet = scene.subnet()
    first = scene.configure(bridge(subnet))
    old = scene.network(first)
    container = scene.run(old)
    plugin, firewall = bridge(subnet)
    second = scene.configure(({**plugin, "bridge": "later"}, firewall))
    scene.lab.docker("rm", "--force", container.name)
    scene.lab.docker("network", "rm", old)
    scene.lab.remove(f"/etc/cni/net.d/{first}.conflist")
    command = f"ip link del {subnet.bridge}"
    assert command in scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={second}")
    scene.lab.run(*command.split())
    assert reaches(scene.run(scene.network(second)), subnet.gateway)


def test_a_bridge_of_the_host_is_not_left_of_a_network(private_scene: Scene) -> None:
    """One with a link, and one in a list, may be used; Docker removes its own."""
    scene = private_scene
    lab, subnet = scene.lab, scene.subnet()
    plugin, firewall = bridge(subnet)
    for name in ("lan", "docker0"):
        lab.run("ip", "link", "add", name, "type", "bridge", check=False)  # docker0 is there
    lab.run("ip", "link", "add", "uplink", "master", "lan", "type", "veth", "peer", "name", "beyond")
    lab.run("ip", "address", "add", f"{subnet.gateway}/24", "dev", "lan")
    lab.run("ip", "address", "add", f"{subnet.gateway}/24", "dev", "docker0")
    scene.network(scene.configure((plugin, firewall)))
    lab.run("ip", "link", "del", "uplink")
    scene.configure(({"type": "bridge", "bridge": "lan"},))
    scene.network(scene.configure((plugin, firewall)))


_OFF = "net.ipv6.conf.all.disable_ipv6"


def test_the_cause_and_the_fix(private_scene: Scene) -> None:
    """Both `network create` and `run` name them, nothing is left, and the command that they show is the cure."""
    lab = private_scene.lab
    configuration = private_scene.configure(bridge(private_scene.subnet(), ipv6=True))
    network = private_scene.network(configuration)
    lab.run("sysctl", "-qw", f"{_OFF}=1")
    refusals = (
        private_scene.run_refusal(network),
        private_scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={configuration}"),
    )
    for refusal in refusals:
        assert f"CNI configuration {configuration} gives IPv6 addresses" in refusal
    wait_torn_down(lab)
    assert get_objects(ask_status(lab), "endpoints") == get_objects(ask_status(lab), "pendingTeardowns") == ()
    fix = re.search(rf"sysctl -w {_OFF}=0 && echo '{_OFF} = 0' >>\S+(?=;)", refusals[0])
    assert fix is not None
    lab.run("sh", "-c", fix[0])
    private_scene.run(network)
    lab.remove(fix[0].rpartition(">>")[2])
