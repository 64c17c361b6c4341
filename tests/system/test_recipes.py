# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The recipes of docs/recipes.md work exactly as they are printed; that with a compose file is in test_compose.py."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pytest

from tests.lab import CommandFailed, Container, Engine, Lab, NoSuchEdition, find_plugins, wait_until
from tests.pages import RECIPES, read_blocks
from tests.system.dhcp_lan import Lan
from tests.system.peer import HOST_IP, OUTSIDE_IP, outside
from tests.system.scene import Scene, reaches

FORWARDING: Final = "/proc/sys/net/ipv6/conf/all/forwarding"


def recipe(heading: str) -> Sequence[str]:
    """Return the blocks of commands of a recipe; `tests/contract/test_pages.py` looks for the calls."""
    return [block.text for block in read_blocks(RECIPES, section=heading) if block.reason is None]


def run_blue(scene: Scene) -> None:
    """Make the list and the network of the first recipe, on which further ones are."""
    for block in recipe("A static address")[:2]:
        scene.shell(block)


@pytest.fixture(scope="module")
def shared_lab(default_lab: Lab) -> Lab:
    """The lab of `scene`: the recipes are for a daemon with its default settings."""
    return default_lab


def addresses(container: Container) -> list[str]:
    """Return a container's addresses without their prefixes."""
    return [str(address.ip) for address in container.link().addresses]


@pytest.mark.long
def test_a_static_address(scene: Scene) -> None:
    """Both commands give the container its address."""
    for block in recipe("A static address"):
        scene.shell(block)
    assert addresses(scene.lab.container("db")) == ["10.22.0.9"]
    assert addresses(scene.lab.container("db2")) == ["10.22.0.10"]
    assert reaches(scene.lab.container("db"), "10.22.0.10")


def test_published_ports(scene: Scene) -> None:
    """Other hosts reach the port only with the recipe's rule; `outside` has the same rule, which is removed first."""
    run, rule = recipe("Published ports")
    run_blue(scene)
    scene.shell(run)
    web = scene.lab.container("web").exec("hostname")
    with outside(scene.lab) as there:
        scene.shell(rule.replace("-I", "-D"))  # `outside` made it
        assert host_name(scene.lab, (), "127.0.0.1:8080") == web
        assert host_name(scene.lab, there, f"{HOST_IP}:8080") == ""
        scene.shell(rule)
        assert host_name(scene.lab, there, f"{HOST_IP}:8080") == web


@pytest.fixture
def native_lab(engine: Engine) -> Iterator[Lab]:
    """A host with nft and without iptables; dockerd does without it, too."""
    try:
        plugins = find_plugins("1.9")
    except NoSuchEdition:
        pytest.skip("plugins 1.9 are not fetched; run `python -m tests.lab.fetch plugins`")
    native = replace(engine, nftables=engine.version >= (29,))
    with Lab(dockerd=False, engine=native, plugins=plugins) as lab:
        for command in ("iptables", "ip6tables", "iptables-legacy", "ip6tables-legacy"):
            lab.run("mount", "--bind", "/dev/null", lab.run("readlink", "-f", f"/usr/sbin/{command}").stdout.strip())
        lab.start_dockerd(*(() if native.nftables else ("--iptables=false", "--ip6tables=false")))
        lab.import_image()
        lab.start_daemon()
        yield lab


def test_a_host_with_nftables_only(native_lab: Lab) -> None:
    """The container reaches others, and others its port; the rules go with it. The command refers to the recipe."""
    lab = native_lab
    assert lab.run("sh", "-c", "command -v iptables", check=False).stdout == ""
    with Scene(lab) as scene, outside(lab) as there:
        for commands in recipe("A host with nftables only"):
            scene.shell(commands)
        n1 = lab.container("n1")
        name = n1.exec("hostname")
        assert reaches(n1, OUTSIDE_IP)  # which has no route back, so the address is masqueraded
        rules = lab.run("nft", "list", "ruleset").stdout
        (address,) = addresses(n1)
        assert all(what in rules for what in ("cni_plugins_masquerade", "cni_hostport", address))
        for where, host in (((), "127.0.0.1"), (there, HOST_IP)):
            assert host_name(lab, where, f"{host}:8081") == name
        lab.docker("rm", "--force", "n1")
        wait_until(lambda: address not in lab.run("nft", "list", "ruleset").stdout, "rules of n1 to go", 10)
        command = (
            sys.executable,
            "-m",
            "cnm_bridge",
            "network",
            "create",
            "--dry-run",
            "other",
            "--subnet",
            "10.27.0.0/16",
        )
        refused = lab.run(*command, check=False)
        assert refused.returncode == 1
        assert "which this host does not have: apt-get install iptables; or write a list for nftables" in refused.stderr


def host_name(lab: Lab, there: Sequence[str], address: str) -> str:
    """Return what the web server behind a published port says its host name is; empty if it does not answer."""
    client = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=3).read().decode())"
    url = f"http://{address}/etc/hostname"
    return lab.run(*there, sys.executable, "-c", client, url, check=False).stdout.strip()


@pytest.mark.long
def test_a_bandwidth_limit(scene: Scene) -> None:
    """Each direction has a token bucket, one of them on an ifb link."""
    run_blue(scene)
    for block in recipe("A bandwidth limit"):
        scene.shell(block)
    found = scene.lab.run("tc", "qdisc", "show").stdout
    assert re.search(r"tbf .* rate 10Mbit ", found)
    assert re.search(r"tbf .* dev bwp\w+ .* rate 2Mbit ", found)


def test_macvlan(scene: Scene) -> None:
    """The container has its address and MAC, and reaches the LAN."""
    for block in recipe("macvlan on a LAN"):
        scene.shell(block)
    printer = scene.lab.container("printer")
    assert addresses(printer) == ["192.168.22.210"]
    assert printer.link().mac == "02:11:22:33:44:55"
    lan = f"{Scene.UPLINK}-end"
    scene.lab.run("ip", "address", "add", "192.168.22.1/24", "dev", lan)
    assert reaches(printer, "192.168.22.1")


@pytest.mark.usefixtures("sandbox_before_join")
def test_dhcp_on_a_lan(scene: Scene) -> None:
    """The container has a lease, and the same address after a restart."""
    lan = Lan(scene.lab, scene.subnet())
    try:
        lan.start_daemon()
        lan.start_server()
        for block in recipe("DHCP on a LAN"):
            scene.shell(block)
        camera = scene.lab.container("camera")
        before = addresses(camera)
        assert lan.leases() == before
        scene.lab.docker("restart", "-t", "0", "camera")
        assert addresses(camera) == before
    finally:
        lan.close()


def test_ipv6_from_the_lans_router(scene: Scene) -> None:
    """The container has an address with the prefix of the router, on which dnsmasq runs."""
    lab = scene.lab
    network, router, stop = recipe("IPv6 from the LAN's router")
    forwarding = lab.run("cat", FORWARDING).stdout
    scene.shell(recipe("macvlan on a LAN")[0])
    lab.run("ip", "link", "set", f"{Scene.UPLINK}-end", "name", "lan0")
    lab.run("ip", "address", "add", "fd22::1/64", "dev", "lan0", "nodad")
    scene.shell(network)
    scene.shell(router)
    try:
        sensor = lab.container("sensor")
        wait_until(lambda: any(one.startswith("fd22::") for one in addresses(sensor)), "an address", 30)
        assert "fd22::" in lab.run("cni-bridge", "ls", "lan-v6").stdout
        # Duplicate address detection takes a second, before which the address cannot be used.
        wait_until(lambda: reaches(sensor, "fd22::1"), "the router is reached", 30)
    finally:
        scene.shell(stop)
        lab.run("tee", FORWARDING, input=forwarding)


@pytest.mark.usefixtures("sandbox_before_join")
def test_a_vrf(scene: Scene) -> None:
    """The link is in the VRF. A kernel without VRF makes the plugin fail with an error that the documents explain."""
    file, block = recipe("A VRF")
    scene.shell(file)
    has_vrf = scene.lab.run("ip", "link", "add", "probe", "type", "vrf", "table", "99", check=False).returncode == 0
    if not has_vrf:
        with pytest.raises(CommandFailed, match="could not add VRF"):
            scene.shell(block)
        pytest.skip("this kernel has no VRF: only the refusal was tested")
    scene.lab.run("ip", "link", "del", "probe")
    scene.shell(block)
    assert scene.lab.docker("exec", "t1", "readlink", "/sys/class/net/eth0/master").strip().endswith("/tenant")


@pytest.mark.long
def test_ipv6(scene: Scene) -> None:
    """The container has addresses of both families, and Docker shows both."""
    for block in recipe("IPv6"):
        scene.shell(block)
    six = scene.lab.container("six")
    assert "fd23::9" in addresses(six)
    assert len(six.endpoint("dual").addresses) == 2
    assert reaches(six, "fd23::1")
