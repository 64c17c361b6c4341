# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Each option takes effect: on a network as a default, on an endpoint instead of that default."""

import json
from collections.abc import Sequence

import pytest

from cni_bridge_spec import JsonObject, get_object, get_str
from cnm_bridge.core.settings import AttachOption
from tests.lab import Container
from tests.system.peer import time_to_send
from tests.system.plugin_lists import BANDWIDTH
from tests.system.scene import PREV_RESULT, Scene, bridge, ptp, reaches, wait_logged


def witness(scene: Scene, *, capabilities: Sequence[str] = ()) -> str:
    """Make a list whose last plugin records its input at ADD; return the list's name."""
    scene.plugin(
        "witness",
        'input=$(cat); [ "$CNI_COMMAND" = ADD ] || exit 0; '
        "printf '%s' \"$input\" >/run/witnessed; printf '%s' \"$CNI_ARGS\" >/run/witnessed-args; "
        f'printf \'%s\' "$input" | python3 -c "{PREV_RESULT}"',
    )
    plugin: JsonObject = {"type": "witness", "capabilities": dict.fromkeys(capabilities, True)}
    return scene.configure([*bridge(scene.subnet()), plugin])


def witnessed(scene: Scene) -> JsonObject:
    """Return the standard input of the plugin at ADD."""
    found: JsonObject = json.loads(scene.lab.read("/run/witnessed"))
    return found


def host_link(scene: Scene, container: Container) -> str:
    """Return the name of the other end of the container's link."""
    peer = container.ip("link", "show", "eth0")[0]["link_index"]
    links = json.loads(scene.lab.run("ip", "-json", "link").stdout)
    return next(get_str(link, "ifname") for link in links if link["ifindex"] == peer)


def shaped(scene: Scene, link: str) -> tuple[int, int]:
    """Return rate (bits per second) and burst (bits) of a link's token bucket."""
    (root,) = json.loads(scene.lab.run("tc", "-json", "qdisc", "show", "dev", link, "root").stdout)
    assert root["kind"] == "tbf"
    options = get_object(root, "options")
    return round(float(str(options["rate"])) * 8), round(float(str(options["burst"])) * 8)


def test_bandwidth_of_networks_and_endpoints(scene: Scene) -> None:
    """A container's links are limited to the network's rates, or to the container's own where it has them."""
    subnet = scene.subnet()
    network = scene.network(
        scene.configure([*bridge(subnet), BANDWIDTH]),
        *("-o", "cni.bandwidth.ingress-rate=8M", "-o", "cni.bandwidth.ingress-burst=2M"),
    )
    container = scene.run(network)
    rate, burst = shaped(scene, host_link(scene, container))
    assert rate == 8_000_000
    assert burst == pytest.approx(2_000_000, rel=0.01)  # the kernel counts it in ticks
    other = scene.run(
        f"name={network},driver-opt=cni.bandwidth.ingress-rate=16Mbit,driver-opt=cni.bandwidth.egress-rate=4M"
    )
    rate, burst = shaped(scene, host_link(scene, other))
    assert rate == 16_000_000
    assert burst == pytest.approx(2_000_000, rel=0.01)
    (ifb,) = [link for link in links_of_kind(scene, "ifb") if shaped(scene, link)[0] == 4_000_000]
    assert shaped(scene, ifb)[1] == pytest.approx(8 * 65_536, rel=0.01)
    assert reaches(other, subnet.gateway)
    sent = json.loads(scene.lab.run("tc", "-s", "-json", "qdisc", "show", "dev", ifb, "root").stdout)
    assert sent[0]["packets"] > 0  # the container's traffic goes through it


def links_of_kind(scene: Scene, kind: str) -> list[str]:
    """Return the names of the host's links of a kind."""
    return [link["ifname"] for link in json.loads(scene.lab.run("ip", "-json", "link", "show", "type", kind).stdout)]


@pytest.mark.representatives("ingress")
@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_bandwidth_limits_traffic(scene: Scene, direction: str) -> None:
    """A transfer takes at least the time that rate and burst imply; it may take longer on a busy machine."""
    subnet = scene.subnet()
    network = scene.network(scene.configure([*bridge(subnet), BANDWIDTH]))
    rate, burst, size = 2_000_000, 128_000, 500_000
    options = (f"cni.bandwidth.{direction}-rate={rate}", f"cni.bandwidth.{direction}-burst={burst}")
    container = scene.run(f"name={network},{','.join(f'driver-opt={option}' for option in options)}")
    address = str(container.link().addresses[0].ip) if direction == "ingress" else subnet.gateway
    sender, receiver = (None, container) if direction == "ingress" else (container, None)
    seconds = time_to_send(scene.lab, sender, receiver, address=address, port=9999, size=size)
    assert seconds > (8 * size - burst) / rate  # without a limit it takes milliseconds


def test_options_of_network_connect(scene: Scene) -> None:
    """`docker network connect --driver-opt` takes the same options, and keeps upper-case letters."""
    container = scene.run(scene.bridge_network()[0])
    network = scene.network(witness(scene, capabilities=["deviceID"]), "-o", "cni.args.Key=Default")
    options = ("cni.args.Key=Value", "cni.labels.Tier=Web", 'cni.capability.deviceID="0000:04:00.5"')
    words = [word for option in options for word in ("--driver-opt", option)]
    words[-1] = '"' + words[-1].replace('"', '""') + '"'  # the command line reads CSV
    scene.lab.docker("network", "connect", *words, network, container.name)
    assert scene.lab.read("/run/witnessed-args") == "IgnoreUnknown=1;Key=Value"
    assert witnessed(scene)["args"] == {"cni": {"labels": [{"key": "Tier", "value": "Web"}]}}
    assert witnessed(scene)["runtimeConfig"] == {"deviceID": "0000:04:00.5"}
    assert "cni.argz.A" in scene.refusal(
        "network", "connect", "--driver-opt", "cni.argz.A=1", scene.bridge_network()[0], container.name
    )


def test_cni_args(scene: Scene) -> None:
    """`cni.args.KEY` becomes CNI_ARGS with `IgnoreUnknown`, so that other plugins accept it, also at DEL."""
    network = scene.network(witness(scene), "-o", "cni.args.ONE=1", "-o", "cni.args.TWO=2")
    before = scene.lab.state()
    container = scene.run(f"name={network},driver-opt=cni.args.TWO=two")
    assert scene.lab.read("/run/witnessed-args") == "IgnoreUnknown=1;ONE=1;TWO=two"
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before) == ""


def test_arguments_in_lower_case(scene: Scene) -> None:
    """Docker's command line makes them so: the spelling of a known one is restored, and an unknown one is logged."""
    network = scene.network(witness(scene))
    scene.run(f"name={network},driver-opt=cni.args.OvnPort=p1,driver-opt=cni.args.PortName=p2")
    assert scene.lab.read("/run/witnessed-args") == "IgnoreUnknown=1;OvnPort=p1;portname=p2"
    assert "cni.args.portname" in wait_logged(scene.lab, "endpoint.argument_in_lower_case")


def test_the_links_name(scene: Scene) -> None:
    """`cni.ifname-prefix` is the prefix of the link's name; Docker adds the number."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet)), "-o", "cni.ifname-prefix=blue")
    container = scene.run(network)
    assert [link.name for link in container.links()] == ["blue0"]
    assert reaches(container, subnet.gateway)
    other = scene.run(f"name={network},driver-opt=cni.ifname-prefix=red")
    assert [link.name for link in other.links()] == ["red0"]
    assert "cni.ifname-prefix" in scene.run_refusal(f"name={network},driver-opt=cni.ifname-prefix=a/b")


def test_another_configuration(scene: Scene, attach: AttachOption) -> None:
    """A container can use another list than its network's; that list also deletes its attachment."""
    network, _ = scene.bridge_network()
    subnet = scene.subnet()
    other = scene.configure(ptp(subnet))
    before = scene.lab.state()
    container = scene.run(f"name={network},driver-opt=cni.network={other}")
    single = attach is AttachOption.MOVE  # otherwise as the plugin makes it
    assert str(container.link().addresses[0]).endswith("/32" if single else "/24")
    scene.lab.docker("rm", "-f", container.name)
    assert scene.lab.wait_clean(before) == ""
    assert '"nowhere"' in scene.run_refusal(f"name={network},driver-opt=cni.network=nowhere")
