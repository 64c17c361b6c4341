# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""cni-bridge as Docker's IPAM driver: networks of Docker's own drivers take their addresses from a CNI IPAM plugin."""

import json
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from ipaddress import ip_interface

import pytest

from cni_bridge_spec import JsonObject, as_object, get_object, get_objects, get_str
from tests.lab import PLUGIN_SOCKET, Container, Lab, wait_until
from tests.system.calls import ask_status
from tests.system.scene import Scene, Subnet, bridge, reaches, wait_logged
from tests.system.test_restarts import is_running

IPAM = ("--ipam-driver", "cni-bridge", "--ipam-opt")

DRIVERS = {
    "bridge": ("-d", "bridge"),
    "macvlan": ("-d", "macvlan", "-o", f"parent={Scene.UPLINK}"),
    "ipvlan": ("-d", "ipvlan", "-o", f"parent={Scene.UPLINK}"),
}


def section(subnet: Subnet, **more: object) -> JsonObject:
    """Return a file with nothing but an IPAM section of host-local."""
    return {"cniVersion": "1.0.0", "ipam": {"type": "host-local", "subnet": subnet.ipv4, **more}}  # type: ignore[dict-item]


def write_section(scene: Scene, document: JsonObject) -> str:
    """Put such a file on the host; return the section's name."""
    name = f"section{scene.subnet().number}"
    scene.file(f"{name}.ipam", {**document, "name": name})
    return name


def network(scene: Scene, name: str, *options: str, driver: str = "bridge") -> str:
    """Make a network of a driver of Docker's whose addresses come from a section."""
    return scene.builtin_network(*DRIVERS[driver], *IPAM, f"cni.ipam={name}", *options)


def reservations(lab: Lab, name: str) -> Sequence[str]:
    """Return the addresses that host-local has reserved on a CNI network."""
    found = lab.run("sh", "-c", f"ls /var/lib/cni/networks/{name} 2>/dev/null", check=False).stdout.split()
    return sorted(one for one in found if one[0].isdigit() or ":" in one)


def wait_released(lab: Lab, configuration: str) -> None:
    """Wait until nothing is reserved: Docker does not wait for the plugin's release."""
    wait_until(lambda: reservations(lab, configuration) == [], "the release of the addresses", 30)


def address_of(container: Container) -> str:
    """Return the container's only IPv4 address, with its prefix length."""
    (address,) = (str(one) for one in container.link().addresses if one.version == 4)
    return address


def inspected(scene: Scene, name: str) -> JsonObject:
    """Return what `docker network inspect` shows."""
    (found,) = json.loads(scene.lab.docker("network", "inspect", name))
    return as_object(found, "network")


def has_ipvlan(lab: Lab) -> bool:
    """Return whether the kernel can make a link of kind ipvlan."""
    made = lab.run("ip", "link", "add", "link", Scene.UPLINK, "name", "ipv0", "type", "ipvlan", check=False)
    lab.run("ip", "link", "del", "ipv0", check=False)
    return made.returncode == 0


@contextmanager
def released(lab: Lab, name: str) -> Iterator[None]:
    """Assert at the end that host-local has no reservation of a CNI network."""
    yield
    wait_until(lambda: not reservations(lab, name), f"{name} has no reservations", timeout_s=20)


@pytest.mark.representatives("bridge", "macvlan")
@pytest.mark.smoke
@pytest.mark.parametrize("driver", DRIVERS)
def test_addresses_of_dockers_own_drivers(scene: Scene, driver: str) -> None:
    """A container has an address of the section, Docker shows it, and it is free when the container is gone."""
    if driver == "ipvlan" and not has_ipvlan(scene.lab):
        pytest.skip("this kernel has no ipvlan")
    subnet = scene.subnet()
    name = write_section(scene, section(subnet))
    made = network(scene, name, driver=driver)
    first, second = scene.run(made), scene.run(made)
    assert reservations(scene.lab, name) == [f"10.80.{subnet.number}.2", f"10.80.{subnet.number}.3"]
    assert address_of(first) == f"10.80.{subnet.number}.2/24"
    assert [str(one) for one in first.endpoint(made).addresses] == [f"10.80.{subnet.number}.2/24"]
    assert reaches(second, f"10.80.{subnet.number}.2")
    pools = scene.lab.run("cni-bridge", "status").stdout.partition("ADDRESS POOL")[2]
    assert any({name, subnet.ipv4} <= {*line.split()} for line in pools.splitlines())
    (config,) = get_objects(get_object(inspected(scene, made), "IPAM"), "Config")
    assert (get_str(config, "Subnet"), get_str(config, "Gateway").partition("/")[0]) == (subnet.ipv4, subnet.gateway)
    scene.lab.docker("rm", "-f", first.name)
    left = [f"10.80.{subnet.number}.3"]
    wait_until(lambda: reservations(scene.lab, name) == left, "the release, for which Docker does not wait", 20)
    scene.lab.docker("rm", "-f", second.name)
    wait_released(scene.lab, name)


def test_the_section_of_a_list(scene: Scene) -> None:
    """`cni.ipam` also names a network configuration list; its addresses are shared with containers on that list."""
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    other = scene.run(scene.network(name))
    made = network(scene, name, "--subnet", subnet.ipv4, driver="macvlan")  # its bridge has a route there
    container = scene.run(made)
    assert address_of(other) == f"10.80.{subnet.number}.2/24"
    assert address_of(container) == f"10.80.{subnet.number}.3/24"
    refused = scene.run_refusal(made, "--ip", f"10.80.{subnet.number}.2")
    assert f"10.80.{subnet.number}.2 is in use by container {other.name} (endpoint " in refused


def test_a_given_address(scene: Scene) -> None:
    """`--ip` is reserved by the plugin; while a container has it, another is refused; afterwards it is free at once."""
    subnet = scene.subnet()
    name = write_section(scene, section(subnet))
    made = network(scene, name, "--subnet", subnet.ipv4)
    wanted = f"10.80.{subnet.number}.77"
    first = scene.run(made, "--ip", wanted)
    assert address_of(first) == f"{wanted}/24"
    assert reservations(scene.lab, name) == [wanted]
    refused = scene.run_refusal(made, "--ip", wanted)
    assert f"{wanted} of IPAM section {name} is in use" in refused
    assert reservations(scene.lab, name) == [wanted]
    for _ in range(3):
        scene.lab.docker("restart", "-t", "0", first.name)
        assert address_of(first) == f"{wanted}/24"
    scene.lab.docker("rm", "-f", first.name)
    assert address_of(scene.run(made, "--ip", wanted)) == f"{wanted}/24"


@pytest.mark.long
def test_an_address_outside_of_the_ranges(scene: Scene) -> None:
    """As with Docker's own IPAM, `--ip` and `--aux-address` may be outside of the range: the record alone has them."""
    subnet = scene.subnet()
    begin = f"10.80.{subnet.number}."
    name = write_section(scene, section(subnet, rangeStart=f"{begin}100", rangeEnd=f"{begin}110"))
    made = network(
        scene, name, "--subnet", subnet.ipv4, "--gateway", f"{begin}254", "--aux-address", f"printer={begin}20"
    )
    first = scene.run(made, "--ip", f"{begin}21")
    assert address_of(first) == f"{begin}21/24"
    assert address_of(scene.run(made)) == f"{begin}100/24"
    assert reservations(scene.lab, name) == [f"{begin}100"]
    for taken in ("20", "21", "254"):
        assert "is in use" in scene.run_refusal(made, "--ip", f"{begin}{taken}")
    assert "is the gateway of" in scene.run_refusal(made, "--ip", f"{begin}1")
    (config,) = get_objects(get_object(inspected(scene, made), "IPAM"), "Config")
    assert get_str(config, "Gateway") == f"{begin}254"
    scene.lab.docker("rm", "-f", first.name)
    assert address_of(scene.run(made, "--ip", f"{begin}21")) == f"{begin}21/24"


def test_aux_addresses_and_a_gateway_in_the_range(scene: Scene) -> None:
    """An `--aux-address` and another gateway than the section's are reserved, and free when the network is gone."""
    subnet = scene.subnet()
    begin = f"10.80.{subnet.number}."
    name = write_section(scene, section(subnet))
    options = ("--subnet", subnet.ipv4, "--gateway", f"{begin}9", "--aux-address", f"a={begin}2")
    made = network(scene, name, *options, driver="macvlan")
    assert reservations(scene.lab, name) == sorted([f"{begin}2", f"{begin}9"])
    assert address_of(scene.run(made)) == f"{begin}3/24"
    scene.lab.docker("rm", "-f", *scene.lab.docker("ps", "-aq").split())
    scene.lab.docker("network", "rm", made)
    wait_released(scene.lab, name)


def test_an_ip_range(scene: Scene) -> None:
    """`--ip-range` restricts what the plugin chooses, and not what a user gives."""
    subnet = scene.subnet()
    begin = f"10.80.{subnet.number}."
    name = write_section(scene, section(subnet))
    made = network(scene, name, "--subnet", subnet.ipv4, "--ip-range", f"{begin}128/25")
    assert address_of(scene.run(made)) == f"{begin}128/24"
    assert address_of(scene.run(made, "--ip", f"{begin}5")) == f"{begin}5/24"


def test_both_families(scene: Scene) -> None:
    """A section with IPv4 and IPv6 gives each its own address, also if only one of them is given."""
    subnet = scene.subnet()
    ipam: JsonObject = {"type": "host-local", "ranges": [[{"subnet": subnet.ipv4}], [{"subnet": subnet.ipv6}]]}
    name = write_section(scene, {"cniVersion": "1.0.0", "ipam": ipam})
    made = network(scene, name, "--ipv6", "--subnet", subnet.ipv4, "--subnet", subnet.ipv6)
    container = scene.run(made, "--ip6", f"fd80:{subnet.number}::77")
    addresses = {str(one) for one in container.link().addresses if not one.is_link_local}
    assert addresses == {f"10.80.{subnet.number}.2/24", str(ip_interface(f"fd80:{subnet.number}::77/64"))}
    assert len(reservations(scene.lab, name)) == len(addresses)
    scene.lab.docker("rm", "-f", container.name)
    wait_released(scene.lab, name)


def test_a_full_range(scene: Scene) -> None:
    """The plugin's own error says that no address is left; an address that is released is given again at once."""
    subnet = scene.subnet()
    begin = f"10.80.{subnet.number}."
    name = write_section(scene, section(subnet, rangeStart=f"{begin}5", rangeEnd=f"{begin}6"))
    made = network(scene, name)
    first = scene.run(made)
    scene.run(made)
    error = scene.run_refusal(made)
    assert "no IP addresses available in range set" in error
    assert "`cni-bridge ls` and `GET /v1/addresses` at the admin socket show who has addresses; " in error
    scene.lab.docker("rm", "-f", first.name)
    assert address_of(scene.run(made)) == f"{begin}5/24"


def test_a_pool_that_overlaps_the_hosts_routes(scene: Scene) -> None:
    """Docker would repeat its request without end: it is refused with `--subnet` as the remedy, which works."""
    subnet = scene.subnet()
    name = write_section(scene, section(subnet))
    scene.lab.run("ip", "address", "add", f"10.80.{subnet.number}.200/24", "dev", Scene.UPLINK)
    refused = scene.creation_refusal(*IPAM, f"cni.ipam={name}", "-d", "macvlan", "-o", f"parent={Scene.UPLINK}")
    assert "overlaps a route or a name server of this host" in refused
    made = network(scene, name, "--subnet", subnet.ipv4, driver="macvlan")
    assert address_of(scene.run(made)) == f"10.80.{subnet.number}.2/24"


def own_network(scene: Scene, configuration: str, name: str, *options: str) -> str:
    """Make a network of this driver whose addresses come from a section."""
    return scene.docker_network(configuration, *IPAM, f"cni.ipam={name}", *options)


@pytest.mark.smoke
def test_addresses_of_this_driver(scene: Scene) -> None:
    """With both drivers of cni-bridge, the reservation becomes the endpoint's, and is free after its teardown."""
    subnet = scene.subnet()
    name = scene.configure(bridge(subnet))
    made = own_network(scene, name, name, "--subnet", subnet.ipv4)
    first = scene.run(made)
    second = scene.run(made, "--ip", f"10.80.{subnet.number}.9")
    assert address_of(first) == f"10.80.{subnet.number}.2/24"
    assert address_of(second) == f"10.80.{subnet.number}.9/24"
    assert [str(one) for one in first.endpoint(made).addresses] == [f"10.80.{subnet.number}.2/24"]
    assert reaches(first, f"10.80.{subnet.number}.9")
    assert reaches(first, subnet.gateway)
    assert reservations(scene.lab, name) == [f"10.80.{subnet.number}.2", f"10.80.{subnet.number}.9"]
    scene.lab.docker("rm", "-f", second.name)
    again = scene.run(made, "--ip", f"10.80.{subnet.number}.9")
    assert reaches(again, subnet.gateway)
    with released(scene.lab, name):
        scene.lab.docker("rm", "-f", first.name, again.name)


def test_a_restart_on_a_full_range(scene: Scene) -> None:
    """A container that restarts waits for its own teardown, which frees the only address."""
    subnet = scene.subnet()
    begin = f"10.80.{subnet.number}."
    name = write_section(scene, section(subnet, rangeStart=f"{begin}5", rangeEnd=f"{begin}5"))
    made = own_network(scene, scene.configure(bridge(subnet)), name)
    container = scene.run(made)
    for _ in range(3):
        scene.lab.docker("restart", "-t", "0", container.name)
        assert address_of(container) == f"{begin}5/24"


@pytest.mark.long
def test_a_killed_dockerd(private_scene: Scene) -> None:
    """After a crash of dockerd its addresses are free; the containers start again with new ones."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    name = write_section(private_scene, section(subnet))
    made = network(private_scene, name)
    first, second = private_scene.run(made), private_scene.run(made)
    lab.restart_dockerd(signal.SIGKILL)
    wait_until(lambda: not reservations(lab, name), "the addresses are free", timeout_s=30)
    lab.docker("start", first.name, second.name)
    assert len(reservations(lab, name)) == 2


@pytest.mark.long
def test_a_lost_state(private_scene: Scene) -> None:
    """A pool whose record is lost is made again from its ID; what the plugin has reserved stays reserved."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    name = write_section(private_scene, section(subnet))
    made = network(private_scene, name)
    private_scene.run(made)
    lab.stop_daemon()
    lab.run("sh", "-c", "rm -r /var/lib/cni-bridge/*")
    lab.start_daemon()
    assert address_of(private_scene.run(made)) == f"10.80.{subnet.number}.3/24"
    wait_logged(lab, "pool.rebuilt")
    lab.docker("rm", "-f", *lab.docker("ps", "-aq").split())
    assert reservations(lab, name) == [f"10.80.{subnet.number}.2"]
    lab.remove(f"/var/lib/cni/networks/{name}/10.80.{subnet.number}.2")


def request(lab: Lab, method: str, body: JsonObject) -> JsonObject:
    """Call the daemon as Docker's IPAM does."""
    _, answer = lab.request(PLUGIN_SOCKET, "POST", f"/IpamDriver.{method}", body)
    return as_object(answer, method)


def test_an_address_that_docker_has_lost(private_scene: Scene) -> None:
    """An address that no endpoint has is released after a while, but not while it may still be on its way."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    lab.stop_daemon()
    lab.start_daemon("--reconcile-interval", "1", "--plugin-timeout", "4")
    name = write_section(private_scene, section(subnet))
    made = network(private_scene, name, "--subnet", subnet.ipv4, "--aux-address", f"a=10.80.{subnet.number}.200")
    kept = private_scene.run(made)
    (pool,) = (get_str(one, "id") for one in get_objects(ask_status(lab), "pools"))
    assert "Address" in request(lab, "RequestAddress", {"PoolID": pool, "Address": ""})
    assert len(reservations(lab, name)) == 3
    wait_logged(lab, "address.dead", timeout_s=60)
    wait_until(lambda: len(reservations(lab, name)) == 2, "it is released", timeout_s=20)
    assert reservations(lab, name) == sorted([address_of(kept).partition("/")[0], f"10.80.{subnet.number}.200"])


def test_containers_that_come_and_go_at_once(scene: Scene) -> None:
    """As many containers at once as there are addresses: none is refused, because what is released is free at once."""
    subnet = scene.subnet()
    begin = f"10.80.{subnet.number}."
    name = write_section(scene, section(subnet, rangeStart=f"{begin}5", rangeEnd=f"{begin}7"))
    made = network(scene, name)

    def come_and_go(_: int) -> None:
        for _ in range(3):
            scene.lab.docker("run", "--rm", "--net", made, "busybox", "true")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(come_and_go, range(3)))
    wait_released(scene.lab, name)


def wait_for_next_second() -> None:
    """Records have whole seconds, and only what is older than dockerd counts as lost."""
    now = int(time.time())
    wait_until(lambda: time.time() >= now + 1, "the next second")


@pytest.mark.long
def test_a_boot_without_the_daemon(private_scene: Scene) -> None:
    """Docker could not release the address of its previous run; after comparisons its container gets it again."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    name = write_section(private_scene, section(subnet))
    made = network(private_scene, name, "--subnet", subnet.ipv4)
    address = f"10.80.{subnet.number}.10"
    container = private_scene.run(made, "--ip", address)
    wait_for_next_second()
    lab.stop_daemon(signal.SIGKILL)
    lab.stop_dockerd(signal.SIGKILL)
    lab.start_dockerd(timeout_s=180)
    lab.start_daemon("--reconcile-interval", "1", "--plugin-timeout", "2")
    assert reservations(lab, name) == [address]
    start = ("docker", "start", container.name)
    wait_until(lambda: lab.run(*start, check=False).returncode == 0, "the address to be free", 60, poll_s=1.0)
    assert address_of(container) == f"{address}/24"
    assert reservations(lab, name) == [address]
    assert "in use" in private_scene.run_refusal(made, "--ip", address)


@pytest.mark.long
def test_a_daemon_that_comes_while_docker_boots(private_scene: Scene) -> None:
    """A container with a given address and a restart policy runs again, and so does one that is started by hand."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    name = write_section(private_scene, section(subnet))
    made = network(private_scene, name, "--subnet", subnet.ipv4)
    given = [f"10.80.{subnet.number}.{number}" for number in (10, 11)]
    restarted = private_scene.run(made, "--ip", given[0], "--restart", "always")
    stopped = private_scene.run(made, "--ip", given[1])
    wait_for_next_second()
    lab.stop_daemon(signal.SIGKILL)
    lab.stop_dockerd(signal.SIGKILL)
    with ThreadPoolExecutor() as threads:
        booting = threads.submit(lab.start_dockerd, timeout_s=180)
        wait_until(lambda: lab.dockerd is not None and "retrying in" in lab.dockerd.log(), "dockerd needs the daemon")
        lab.start_daemon()
        booting.result()
    wait_until(lambda: is_running(lab, restarted.name), "the restart policy", timeout_s=60)
    lab.docker("start", stopped.name)
    assert [address_of(one) for one in (restarted, stopped)] == [f"{one}/24" for one in given]
