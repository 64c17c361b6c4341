# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requested addresses: the container has them and Docker shows them, or the container does not start."""

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_interface, ip_network

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.settings import AttachOption
from tests.lab import Container
from tests.system.calls import wait_torn_down
from tests.system.scene import Scene, Subnet, bridge, macvlan, ptp, reaches


def host_local(subnet: Subnet, *, ipv4: bool = True, ipv6: bool = False) -> JsonObject:
    """Return an IPAM part of host-local with default routes, for the given families."""
    subnets = [*([subnet.ipv4] if ipv4 else []), *([subnet.ipv6] if ipv6 else [])]
    routes = [*([{"dst": "0.0.0.0/0"}] if ipv4 else []), *([{"dst": "::/0"}] if ipv6 else [])]
    return {"type": "host-local", "ranges": [[{"subnet": text}] for text in subnets], "routes": routes}


def list_of(subnet: Subnet, ipam: JsonObject, **more: object) -> Sequence[JsonObject]:
    """Return a bridge with this IPAM part."""
    main = {"type": "bridge", "bridge": subnet.bridge, "isGateway": True, "ipMasq": True, "ipam": ipam, **more}
    return main, {"type": "firewall"}  # type: ignore[return-value]  # JSON by construction


WAYS: Mapping[str, Callable[[Subnet], Sequence[JsonObject]]] = {
    "capability": lambda subnet: list_of(subnet, host_local(subnet), capabilities={"ips": True}),
    "host-local": lambda subnet: list_of(subnet, host_local(subnet)),
    "static with capability": lambda subnet: list_of(subnet, {"type": "static"}, capabilities={"ips": True}),
    "static": lambda subnet: list_of(subnet, {"type": "static", "routes": [{"dst": "0.0.0.0/0"}]}),
    "no IPAM plugin": lambda subnet: list_of(subnet, {}),
    "dhcp": lambda subnet: list_of(subnet, {"type": "dhcp"}),
    "ptp": ptp,
    "macvlan": macvlan,
}


def assert_addresses(container: Container, network: str, *addresses: str) -> None:
    """Assert that a container has exactly these addresses, and that Docker shows them."""
    wanted = sorted(map(str, map(ip_interface, addresses)))
    assert sorted(map(str, container.link().addresses)) == wanted
    assert sorted(map(str, container.endpoint(network).addresses)) == wanted


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.representatives("capability", "static")
def test_a_static_address(scene: Scene, way: str, attach: AttachOption) -> None:
    """`driver-opt=cni.ips=…` gives the container that address, by whichever input the list's plugins take it."""
    subnet = scene.subnet()
    if way == "dhcp":  # without an address this list cannot be used
        network = scene.network(scene.configure(WAYS[way](subnet)), "-o", f"cni.ips=10.80.{subnet.number}.77/24")
        container = scene.run(network)
    else:
        network = scene.network(scene.configure(WAYS[way](subnet)))
        container = scene.run(f"name={network},driver-opt=cni.ips=10.80.{subnet.number}.77/24")
    length = 32 if way == "ptp" and attach is AttachOption.MOVE else 24  # there is no route for the prefix
    assert list(map(str, container.link().addresses)) == [f"10.80.{subnet.number}.77/{length}"]
    assert list(map(str, container.endpoint(network).addresses)) == [f"10.80.{subnet.number}.77/{length}"]
    if way != "macvlan":
        assert reaches(container, subnet.gateway)


@pytest.mark.parametrize("kind", ["endpoint", "other driver"])
def test_a_taken_address(scene: Scene, kind: str) -> None:
    """The refusal names the container that has the address, and the next command, in every attach mode."""
    subnet = scene.subnet()
    name, wanted = scene.configure(bridge(subnet)), f"10.80.{subnet.number}.77"
    network, asking = scene.network(name), f"driver-opt=cni.ips={wanted}"
    if kind == "other driver":
        options = ("-d", "macvlan", "-o", f"parent={Scene.UPLINK}", "--ipam-driver", "cni-bridge")
        other = scene.builtin_network(*options, "--ipam-opt", f"cni.ipam={name}", "--subnet", subnet.ipv4)
        scene.run(other, "--ip", wanted)
        holder, command = f"{wanted} is in use by ", "`GET /v1/addresses` at the admin socket"
    else:
        first = scene.run(f"name={network},{asking}")
        holder, command = f"{wanted} is in use by container {first.name} (endpoint ", "`cni-bridge ls`"
    error = scene.run_refusal(f"name={network},{asking}")
    assert holder in error
    assert command in error


@pytest.mark.smoke
def test_a_container_that_is_the_gateway(scene: Scene) -> None:
    """A router or VPN container starts without a gateway of its own, also again; others reach the world through it."""
    subnet = scene.subnet()
    router = f"10.80.{subnet.number}.9"
    ipam: JsonObject = {
        "type": "host-local",
        "ranges": [[{"subnet": subnet.ipv4}]],
        "routes": [{"dst": "0.0.0.0/0", "gw": router}],
    }
    plugins: Sequence[JsonObject] = ({**bridge(subnet)[0], "ipam": ipam}, {"type": "firewall"})
    network = scene.network(scene.configure(plugins))
    container = scene.run(f"name={network},driver-opt=cni.ips={router}", "--sysctl", "net.ipv4.ip_forward=1")
    for _ in range(2):
        assert str(container.link().addresses[0].ip) == router
        assert container.ip("route", "show", "default") == ()
        scene.lab.docker("restart", "-t", "0", container.name)
    client = scene.run(network)
    assert [route["gateway"] for route in client.ip("route", "show", "default")] == [router]
    assert reaches(client, router)
    done = scene.lab.run("cni-bridge", "inspect", "--check", container.name, check=False)
    assert done.returncode == 0, done.stdout


LINK_LOCAL = "169.254.0.0/16"


@pytest.mark.smoke
def test_link_local_addresses(scene: Scene) -> None:
    """`--link-local-ip` has its effect in every mode, also after a restart; `firewall` needs a rule for them."""
    network, _ = scene.bridge_network()
    first = scene.run(network, "--link-local-ip", "169.254.7.1")
    second = scene.run(network, "--link-local-ip", "169.254.7.2", "--link-local-ip", "169.254.7.3")
    for _ in range(2):
        assert ip_interface("169.254.7.1/16") in first.link().addresses
        assert {ip_interface(f"169.254.7.{host}/16") for host in (2, 3)} < set(second.link().addresses)
        scene.lab.docker("restart", "-t", "0", first.name, second.name)
    rule = ("CNI-ADMIN", "-s", LINK_LOCAL, "-d", LINK_LOCAL, "-j", "ACCEPT")
    scene.lab.run("iptables", "-A", *rule)
    try:
        assert reaches(first, "169.254.7.3")
    finally:
        scene.lab.run("iptables", "-D", *rule)
    done = scene.lab.run("cni-bridge", "inspect", "--check", first.name, check=False)
    assert done.returncode == 0, done.stdout


def test_a_link_local_address_of_a_running_container(scene: Scene) -> None:
    """`docker network connect --link-local-ip` has its effect, also if the container has no other network."""
    network, _ = scene.bridge_network()
    container = scene.run(network)
    scene.lab.docker("network", "disconnect", network, container.name)
    scene.lab.docker("network", "connect", "--link-local-ip", "169.254.7.8", network, container.name)
    addresses = [str(address) for link in container.links() for address in link.addresses]
    assert "169.254.7.8/16" in addresses, f"it is not in {addresses}"


def test_dual_stack(scene: Scene) -> None:
    """An address of each family can be requested, or of one only: then the plugins choose the other."""
    subnet = scene.subnet()
    network = scene.network(scene.configure(bridge(subnet, ipv6=True)))
    ipv4, ipv6 = f"10.80.{subnet.number}.44", f"fd80:{subnet.number}::44"
    # The command line's own syntax separates by commas; the quotes are those of its CSV.
    both = scene.run(f'name={network},"driver-opt=cni.ips={ipv4},{ipv6}"')
    assert_addresses(both, network, f"{ipv4}/24", f"{ipv6}/64")
    other = scene.run(f"name={network},driver-opt=cni.ips=fd80:{subnet.number}::45")
    assert ip_interface(f"fd80:{subnet.number}::45/64") in other.link().addresses
    assert len(other.link().addresses) == 2


@pytest.mark.parametrize("way", ["host-local", "static", "no IPAM plugin"])
@pytest.mark.representatives("host-local")
def test_dockers_own_ipam(scene: Scene, way: str) -> None:
    """With `--subnet` Docker chooses addresses, `--ip` works, and the plugins receive its choice."""
    subnet = scene.subnet()
    options = (f"--subnet={subnet.ipv4}", f"--gateway={subnet.gateway}")
    name = scene.configure(WAYS[way](subnet))
    network = scene.docker_network(name, *options)
    chosen = scene.run(network)
    (address,) = chosen.link().addresses
    assert address.ip in ip_network(subnet.ipv4)
    assert_addresses(chosen, network, str(address))
    fixed = scene.run(network, f"--ip=10.80.{subnet.number}.99")
    assert_addresses(fixed, network, f"10.80.{subnet.number}.99/24")
    if way == "host-local":  # the plugin has reserved it, not only Docker
        assert scene.lab.read(f"/var/lib/cni/networks/{name}/10.80.{subnet.number}.99")
    for container in (chosen, fixed):
        assert reaches(container, subnet.gateway)
        assert [str(gateway) for gateway in container.endpoint(network).gateways] == [subnet.gateway]
        assert [route["dst"] for route in container.ip("route") if "gateway" in route] == ["default"]
    assert reaches(chosen, f"10.80.{subnet.number}.99")


def test_addresses_for_network_connect(scene: Scene) -> None:
    """`docker network connect` takes the same options: `--ip`, `--ip6`, and `--driver-opt`."""
    container = scene.run(scene.bridge_network()[0])
    subnet = scene.subnet()
    pools = (f"--subnet={subnet.ipv4}", "--ipv6", f"--subnet={subnet.ipv6}")
    dockers = scene.docker_network(scene.configure(bridge(subnet, ipv6=True)), *pools)
    ipv4, ipv6 = f"10.80.{subnet.number}.98", f"fd80:{subnet.number}::98"
    scene.lab.docker("network", "connect", "--ip", ipv4, "--ip6", ipv6, dockers, container.name)
    assert sorted(map(str, container.endpoint(dockers).addresses)) == [f"{ipv4}/24", f"{ipv6}/64"]
    other = scene.subnet()
    plugins = scene.network(scene.configure(bridge(other, ipv6=True)))
    ipv4, ipv6 = f"10.80.{other.number}.97", f"fd80:{other.number}::97"
    scene.lab.docker("network", "connect", "--driver-opt", f'"cni.ips={ipv4},{ipv6}"', plugins, container.name)
    assert sorted(map(str, container.endpoint(plugins).addresses)) == [f"{ipv4}/24", f"{ipv6}/64"]
    found = {str(address) for link in container.links() for address in link.addresses}
    assert found >= {f"{ipv4}/24", f"{ipv6}/64", *map(str, container.endpoint(dockers).addresses)}


@pytest.mark.engine_since("25", "starts a container on several networks")
def test_several_networks_at_once(scene: Scene) -> None:
    """`--network name=N,ip=…` gives the container the requested address on each network."""
    subnets = [scene.subnet(), scene.subnet()]
    networks = [scene.docker_network(scene.configure(bridge(subnet)), f"--subnet={subnet.ipv4}") for subnet in subnets]
    requested = [f"name={network},ip=10.80.{s.number}.96" for network, s in zip(networks, subnets, strict=True)]
    container = scene.run(requested[0], "--network", requested[1])
    for network, subnet in zip(networks, subnets, strict=True):
        assert [str(address) for address in container.endpoint(network).addresses] == [f"10.80.{subnet.number}.96/24"]
    assert len(container.links()) == 2


@pytest.mark.moves("a container in the host's PID namespace has no first process")
@pytest.mark.usefixtures("sandbox_before_join")
def test_dockers_ipam_and_ptp_in_the_sandbox(scene: Scene) -> None:
    """In mode *hybrid* `ptp` makes the link as Docker knows it, also if the link is moved after all."""
    subnet = scene.subnet()
    options = (f"--subnet={subnet.ipv4}", f"--gateway={subnet.gateway}", "-o", "cni.attach=sandbox")
    network = scene.docker_network(scene.configure(ptp(subnet)), *options)
    for number, further in ((98, ()), (99, ("--pid=host",))):
        container = scene.run(network, f"--ip=10.80.{subnet.number}.{number}", *further)
        assert_addresses(container, network, f"10.80.{subnet.number}.{number}/24")
        assert reaches(container, subnet.gateway)


REFUSES_ARGS = """[ -n "$CNI_ARGS" ] && { echo '{"code": 100, "msg": "IP: invalid CIDR address"}'; exit 1; }
cat > /dev/null; echo "$CNI_COMMAND $CNI_CONTAINERID" >> /run/picky-ran"""


def test_a_teardown_is_not_stopped_by_the_arguments_that_add_refused(scene: Scene) -> None:
    """The plugin's DEL refuses them too; it runs again without them, and nothing is left pending."""
    subnet = scene.subnet()
    scene.plugin("picky", REFUSES_ARGS)
    main: JsonObject = {"type": "bridge", "bridge": subnet.bridge, "ipam": {"type": "picky"}}
    network = scene.network(scene.configure([main]), "-o", "cni.attach=move")
    assert "invalid CIDR" in scene.run_refusal(f"name={network},driver-opt=cni.ips={subnet.ipv4.replace('0/24', '9')}")
    wait_torn_down(scene.lab)
    assert scene.lab.read("/run/picky-ran").startswith("DEL ")
    scene.lab.remove("/run/picky-ran")
