# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""IPv6 addresses from the advertisements of the LAN's router, beside those of the plugins."""

import json
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, get_str, get_strings
from tests.lab import Container, Lab, wait_until
from tests.system.router import Router, on_bridge
from tests.system.scene import Scene, Subnet, macvlan, reaches

SETTING: Final = "net.ipv6.conf.IFNAME.disable_ipv6"
SWITCHED_ON: Final = ("-o", f"com.docker.network.endpoint.sysctls={SETTING}=0")
TUNING: Final[JsonObject] = {"type": "tuning", "sysctl": {SETTING: "0"}}
MODES: Final = ("move", "hybrid", "direct")


@pytest.fixture(name="mode", params=MODES)
def choose_mode(request: pytest.FixtureRequest) -> str:
    """An attach mode that the engine has."""
    mode: str = request.param
    if mode != "move":
        request.getfixturevalue("sandbox_before_join")
    return mode


@pytest.fixture(name="subnet")
def make_subnet(scene: Scene) -> Subnet:
    """The addresses of the plugins."""
    return scene.subnet()


@pytest.fixture(name="router")
def make_router(scene: Scene, subnet: Subnet) -> Iterator[Router]:
    """A router that does not announce anything yet."""
    router = Router(scene.lab, subnet.number)
    yield router
    router.close()


def wait_announced(router: Router, container: Container) -> str:
    """Wait until a container has an address with the router's prefix, and return it with the prefix's length."""
    wait_until(lambda: router.announced(container) != [], "an address with the announced prefix", 20)
    (found,) = router.announced(container)
    return str(found)


def listed(lab: Lab, container: Container) -> JsonObject:
    """Return what `cni-bridge ls` says of a container's only endpoint."""
    document = as_object(json.loads(lab.run("cni-bridge", "ls", "--json").stdout), "the list")
    (found,) = (
        one
        for one in get_objects(document, "endpoints")
        if get_str(as_object(one["container"], "its container"), "name") == container.name
    )
    return found


def link_setting(container: Container) -> str:
    """Return whether IPv6 is off on the link."""
    return container.in_network("cat", "/proc/sys/net/ipv6/conf/eth0/disable_ipv6").stdout.strip()


@pytest.mark.parametrize("kind", ["macvlan", "bridge"])
@pytest.mark.representatives("direct-macvlan")
def test_an_announced_prefix(scene: Scene, router: Router, subnet: Subnet, mode: str, kind: str) -> None:
    """The container has an address with it, which `ls` and `inspect` show as dynamic and Docker does not show."""
    lab = scene.lab
    (of_lan,) = macvlan(subnet)
    main = of_lan if kind == "macvlan" else {"type": "bridge", "bridge": subnet.bridge, "ipam": of_lan["ipam"]}
    with on_bridge(lab, subnet.bridge) if kind == "bridge" else nullcontext():
        router.start()
        network = scene.network(scene.configure([main]), *SWITCHED_ON, mode=mode)
        container = scene.run(network)
        announced = wait_announced(router, container)
        # Duplicate address detection takes a second, before which the address cannot be used.
        wait_until(lambda: reaches(container, str(router.address)), "the router is reached", 20)
        document = listed(lab, container)
        assert get_strings(document, "dynamicAddresses") == (announced,)
        assert announced not in get_strings(document, "addresses")
        assert len(get_strings(document, "addresses")) == 1
        lines = lab.run("cni-bridge", "ls").stdout.splitlines()
        assert any({container.name, announced} <= {*line.split()} for line in lines)
        found = lab.run("cni-bridge", "inspect", announced.partition("/")[0]).stdout
        assert f"{announced} (dynamic)" in found
        assert container.name in found
        assert all(one.version == 4 for one in container.endpoint(network).addresses)
        assert lab.run("cni-bridge", "inspect", "--check", container.name, check=False).returncode == 0
        lab.docker("rm", "-f", container.name)


@pytest.mark.long
def test_the_address_of_a_plugin_is_dockers(scene: Scene, router: Router, subnet: Subnet, mode: str) -> None:
    """With IPv6 in the list the link has both addresses, whatever comes first, and Docker knows that of the plugin."""
    router.start()
    network = scene.network(scene.configure(macvlan(subnet, ipv6=True)), mode=mode)
    container = scene.run(network)
    announced = wait_announced(router, container)
    document = listed(scene.lab, container)
    given = get_strings(document, "addresses")
    assert [one.partition("/")[0].rpartition(":")[0] for one in given if ":" in one] == [f"fd80:{subnet.number}:"]
    assert get_strings(document, "dynamicAddresses") == (announced,)
    shown = [str(one) for one in container.endpoint(network).addresses]
    assert shown == ([*given] if mode != "direct" else [])
    assert scene.lab.run("cni-bridge", "inspect", "--check", container.name, check=False).returncode == 0


@pytest.mark.representatives("move")
def test_without_ipv6_in_the_list(scene: Scene, router: Router, subnet: Subnet, mode: str) -> None:
    """As on Docker's own networks, a link without an IPv6 address has no IPv6, however fast the router answers."""
    router.start()
    container = scene.run(scene.network(scene.configure(macvlan(subnet)), mode=mode))
    assert link_setting(container) == "1"
    assert router.announced(container) == []


@pytest.mark.representatives("hybrid")
def test_a_router_that_comes_later(scene: Scene, router: Router, subnet: Subnet, mode: str) -> None:
    """A list whose `tuning` switches IPv6 on has it before there is any advertisement."""
    container = scene.run(scene.network(scene.configure([*macvlan(subnet), TUNING]), mode=mode))
    wait_until(lambda: link_setting(container) == "0", "IPv6 on the link", 10)
    router.start()
    assert wait_announced(router, container)
