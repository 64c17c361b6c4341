# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A daemon with its default settings: what Docker and its users expect of a network works, with any list."""

from collections.abc import Sequence

import pytest

from cni_bridge_spec import JsonObject, get_object, get_objects, get_str
from cnm_bridge.core.settings import AttachOption
from tests.lab import DAEMON_COMMAND, Container, Engine, Lab
from tests.system.calls import ask_status
from tests.system.scene import PREV_RESULT, Scene, bridge, ptp, reaches

pytestmark = pytest.mark.smoke

OPTION = "com.docker.network.endpoint.ifname"
PASS_ON = f'exec python3 -c "{PREV_RESULT}"'
VRF: JsonObject = {"type": "vrf", "vrfname": "red"}


@pytest.fixture(scope="session")
def daemon_command() -> Sequence[str]:
    """The command without options, whatever `--attach` of pytest is."""
    return DAEMON_COMMAND


@pytest.fixture(scope="module")
def shared_lab(default_lab: Lab) -> Lab:
    """The lab of `scene`."""
    return default_lab


@pytest.fixture(scope="session")
def attach() -> AttachOption:
    """The mode of a container whose list and options do not need another."""
    return AttachOption.MOVE


def names(container: Container) -> set[str]:
    """Return the names of a container's links."""
    return {link.name for link in container.links()}


def modes(scene: Scene) -> list[str]:
    """Return the mode of each endpoint."""
    return sorted(get_str(endpoint, "mode") for endpoint in get_objects(ask_status(scene.lab), "endpoints"))


def test_a_builtin_network_that_is_connected_later(scene: Scene) -> None:
    """Docker's `bridge` gets the next name, nothing else is left in the container, and both networks work."""
    network, subnet = scene.bridge_network()
    container = scene.run(network)
    scene.lab.docker("network", "connect", "bridge", container.name)
    assert names(container) == {"eth0", "eth1"}
    (gateway,) = container.endpoint("bridge").gateways
    for address in (subnet.gateway, str(gateway)):
        assert reaches(container, address)
    scene.lab.docker("network", "disconnect", "bridge", container.name)
    assert names(container) == {"eth0"}
    assert reaches(container, subnet.gateway)


def test_a_network_of_ours_that_is_connected_later(scene: Scene) -> None:
    """Its link has the next number, as a link of Docker's own drivers has."""
    (first, _), (second, subnet) = scene.bridge_network(), scene.bridge_network()
    container = scene.run(first)
    scene.lab.docker("network", "connect", second, container.name)
    assert names(container) == {"eth0", "eth1"}
    assert container.link("eth1").addresses == container.endpoint(second).addresses
    assert reaches(container, subnet.gateway)


def test_docker_counts_the_traffic(scene: Scene) -> None:
    """`docker stats`, and what reads it, shows what the container has received and sent."""
    network, subnet = scene.bridge_network()
    container = scene.run(network)
    container.exec("ping", "-c", "3", "-s", "20000", subnet.gateway)
    received, _, sent = scene.lab.docker("stats", "--no-stream", "--format", "{{.NetIO}}", container.name).partition(
        "/"
    )
    assert (received.strip()[-2:], sent.strip()[-2:]) == ("kB", "kB")


def test_a_plugin_that_fails_at_a_start(scene: Scene) -> None:
    """The container keeps its networks, with every engine, and starts when the plugin works again."""
    lab, subnet = scene.lab, scene.subnet()
    scene.plugin("moody", f'[ "$CNI_COMMAND" = ADD ] || exit 0; [ -e /run/moody ] && exit 1; {PASS_ON}')
    network = scene.network(scene.configure([*bridge(subnet), {"type": "moody"}]))
    container = lab.container(scene.create(network))
    lab.write("/run/moody", "")
    assert "moody" in scene.refusal("start", container.name)
    lab.remove("/run/moody")
    assert list(get_object(get_object(container.inspect(), "NetworkSettings"), "Networks")) == [network]
    lab.docker("start", container.name)
    assert container.link().addresses == container.endpoint(network).addresses
    assert reaches(container, subnet.gateway)


def test_the_whole_name_of_a_link(scene: Scene, engine: Engine) -> None:
    """From Engine 28 on it is the user's, because the plugins run in the sandbox then; Docker knows the addresses."""
    network, subnet = scene.bridge_network()
    named = f"name={network},driver-opt={OPTION}=wan7"
    if engine.version < (28,):
        assert "makes the sandbox after Join" in scene.run_refusal(named)
        return
    container = scene.run(named)
    assert modes(scene) == ["sandbox"]
    assert names(container) == {"wan7"}
    assert container.link("wan7").addresses == container.endpoint(network).addresses
    assert reaches(container, subnet.gateway)


@pytest.mark.parametrize("kind", ["ptp", "sbr"])
@pytest.mark.representatives("ptp")
def test_addresses_of_dockers_ipam(scene: Scene, engine: Engine, kind: str) -> None:
    """Plugins that remove the route of the prefix run in the sandbox, because a moved link has another prefix."""
    subnet = scene.subnet()
    plugins = ptp(subnet) if kind == "ptp" else [*bridge(subnet), {"type": "sbr"}]
    options = (f"--subnet={subnet.ipv4}", f"--gateway={subnet.gateway}")
    configuration = scene.configure(plugins)
    refused = scene.docker_network(configuration, *options, "-o", "cni.attach=move")
    assert "Docker's IPAM chose" in scene.run_refusal(refused)
    scene.lab.docker("network", "rm", refused)
    network = scene.docker_network(configuration, *options)
    if engine.version < (28,):
        assert "Docker's IPAM chose" in scene.run_refusal(network)
        return
    container = scene.run(network)
    assert modes(scene) == ["sandbox"]
    (address,) = container.link().addresses
    assert container.endpoint(network).addresses == (address,)
    container.exec("ping", "-c", "1", "-w", "5", "-I", str(address.ip), subnet.gateway)  # sbr routes by the source


def test_a_list_that_cannot_be_moved(scene: Scene, engine: Engine) -> None:
    """Its plugins run in the sandbox, and Docker knows the addresses; on several networks the link needs a name."""
    lab = scene.lab
    scene.plugin("vrf", f'[ "$CNI_COMMAND" = ADD ] || exit 0; {PASS_ON}')  # the kernel may have no VRF
    configuration = scene.configure([*bridge(scene.subnet()), VRF])
    if engine.version < (28,):
        error = scene.creation_refusal("--ipam-driver=null", "-o", f"cni.network={configuration}")
        assert "a VRF cannot be moved into the container; Docker Engine" in error
        return
    network, builtin = scene.network(configuration), scene.builtin_network()
    container = scene.run(network)
    assert modes(scene) == ["sandbox"]
    assert container.link().addresses == container.endpoint(network).addresses
    lab.docker("rm", "--force", container.name)
    before = lab.state()
    error = scene.run_refusal(network, "--network", builtin)
    assert "the container has further networks; its link cannot be moved there because of plugin vrf" in error
    assert lab.wait_clean(before) == ""
    container = scene.run(f"name={network},driver-opt={OPTION}=red0", "--network", builtin)
    assert names(container) == {"eth0", "red0"}
