# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Compose files, run by docker compose itself: the recipe's, and one with every option of a service's networks."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from textwrap import dedent

import pytest

from cni_bridge_spec import get_objects
from tests.lab import CommandFailed, Container, Engine
from tests.lab.fetch import find_program
from tests.pages import RECIPES, read_blocks
from tests.system.calls import ask_status
from tests.system.peer import ask, serving
from tests.system.plugin_lists import PORTMAP
from tests.system.scene import Scene, bridge, reaches


@pytest.fixture(name="program")
def find_compose() -> str:
    """Return the path of docker compose, which was fetched before."""
    found = find_program("compose")
    if found is None:
        pytest.skip("docker compose is not fetched; run `python -m tests.lab.fetch compose`")
    return str(found)


def compose(scene: Scene, program: str, *command: str) -> str:
    """Run a command of docker compose on the file of `up`, and return its output."""
    file = ("--file", "/run/lab/compose.yaml")
    return scene.lab.run(program, "--project-name", "shop", *file, *command).stdout


@contextmanager
def up(
    scene: Scene, program: str, text: str, *services: str, options: Sequence[str] = ()
) -> Iterator[tuple[Container, ...]]:
    """Bring a compose file up for the length of the block; gives the services' first containers."""
    scene.lab.write("/run/lab/compose.yaml", text)
    try:
        compose(scene, program, "up", "--detach", "--pull", "never", *options)
        yield tuple(scene.lab.container(f"shop-{service}-1") for service in services)
    finally:
        compose(scene, program, "--profile", "*", "down", "--timeout", "0", "--volumes")


def test_the_recipe(scene: Scene, program: str) -> None:
    """The recipe's container is on both networks, with the address that it requests."""
    for section in ("A static address", "IPv6"):
        scene.shell(read_blocks(RECIPES, section=section)[0].text)
    (recipe,) = read_blocks(RECIPES, "yaml")
    before = scene.lab.state()
    with up(scene, program, recipe.text, "web") as (web,):
        found = {str(address.ip) for link in web.links() for address in link.addresses}
        assert "10.22.0.20" in found
        assert any(address.startswith("10.23.") for address in found)
        assert any(address.startswith("fd23::") for address in found)
    assert scene.lab.wait_clean(before) == ""


def test_a_network_that_names_no_configuration(scene: Scene, program: str) -> None:
    """It is bound to the configuration of its name in the compose file, without the project's name."""
    subnet = scene.subnet()
    scene.configure(bridge(subnet), name="front")
    text = """
        services:
          web: { image: busybox, command: sleep 3600, networks: [front] }
        networks:
          front: { driver: cni-bridge, ipam: { driver: "null" } }
    """
    with up(scene, program, dedent(text), "web") as (web,):
        (network,) = get_objects(ask_status(scene.lab), "networks")
        assert (network["name"], network["configuration"]) == ("shop_front", "front")
        assert reaches(web, subnet.gateway)


def test_a_driver_and_nothing_else(scene: Scene, program: str) -> None:
    """It is enough for a list that leaves the addresses to Docker; for others the error has the spelling of compose."""
    front, own = scene.subnet(), scene.subnet()
    scene.configure([{"type": "bridge", "bridge": front.bridge, "isGateway": True}, {"type": "firewall"}], name="front")
    text = """
        services:
          web: { image: busybox, command: sleep 3600, networks: [front] }
          db: { image: busybox, command: sleep 3600, networks: [front] }
        networks:
          front: { driver: cni-bridge }
    """
    with up(scene, program, dedent(text), "web", "db") as (web, db):
        assert web.link().addresses == web.endpoint("shop_front").addresses
        assert reaches(web, "db")
        assert reaches(db, "web")
    scene.configure(bridge(own), name="own")
    refused = dedent(text).replace("front", "own")
    with (
        pytest.raises(CommandFailed, match=r'create it with .* \(compose: ipam: \{ driver: "null" \}\)'),
        up(scene, program, refused, "web"),
    ):
        pass


def test_every_option_of_a_services_networks(scene: Scene, program: str, engine: Engine) -> None:
    """Names, aliases, fixed addresses, ports, a MAC, an internal network and priorities take effect."""
    front, back, home = scene.subnet(), scene.subnet(), scene.subnet()
    for name, subnet in (("front", front), ("back", back), ("home", home)):
        scene.configure([*bridge(subnet), PORTMAP], name=name)
    mac = "mac_address: 02:11:22:33:44:66" if engine.version >= (25,) else ""
    text = f"""
        services:
          web:
            image: busybox
            command: sleep 3600
            ports: ["8110:80"]
            networks:
              front: {{ gw_priority: 1, driver_opts: {{ cni.ifname-prefix: lan }} }}
              back: {{ aliases: [frontend] }}
          db:
            image: busybox
            command: sleep 3600
            depends_on: [web]
            networks:
              back: {{ aliases: [store], {mac} }}
              home: {{ ipv4_address: 10.80.{home.number}.40 }}
        networks:
          front: {{ driver: cni-bridge, driver_opts: {{ cni.network: front }}, ipam: {{ driver: "null" }} }}
          back:
            driver: cni-bridge
            driver_opts: {{ cni.network: back, cni.labels.tier: back }}
            internal: true
            ipam: {{ driver: "null" }}
          home:
            driver: cni-bridge
            driver_opts: {{ cni.network: home }}
            ipam: {{ config: [{{ subnet: {home.ipv4} }}] }}
    """
    if engine.version < (28,):
        text = text.replace("gw_priority: 1, ", "")
    else:
        text = text.replace('ipam: { driver: "null" }', "enable_ipv4: false", 1)
    before = scene.lab.state()
    with up(scene, program, dedent(text), "web", "db") as (web, db):
        assert reaches(web, "store")
        assert reaches(web, "db")
        assert reaches(db, "frontend")
        assert [str(gateway) for gateway in web.endpoint("shop_front").gateways] == [front.gateway]
        assert web.endpoint("shop_back").gateways == ()
        assert sorted(re.sub(r"\d", "", link.name) for link in web.links()) == ["eth", "lan"]
        assert [str(address) for address in db.endpoint("shop_home").addresses] == [f"10.80.{home.number}.40/24"]
        if mac:
            assert db.endpoint("shop_back").mac == "02:11:22:33:44:66"
        with serving(scene.lab, web, 80):
            assert ask(scene.lab, None, "127.0.0.1", 8110) == web.name
    assert scene.lab.wait_clean(before) == ""
