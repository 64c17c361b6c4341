# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Problems of a host are planted; `cni-bridge doctor` finds each, and finds nothing after its fix was typed."""

import signal
import sys
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, get_str
from tests.lab import Lab, wait_until
from tests.system.scene import Scene, bridge, ptp
from tests.system.test_doctor import examine

PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}}
PATH = f"PATH={Path(sys.executable).parent}:$PATH"


def fix(lab: Lab, code: str) -> None:
    """Type the fix of a finding, which must be the only one that counts, into a shell; then nothing is found."""
    status, found = examine(lab)
    assert (status, list(found)) == (1, [code])
    done = lab.run("sh", "-c", f"{PATH}\n{get_str(found[code], 'fix')}", check=False)
    assert done.returncode == 0, f"{found[code]}\n{done.stdout}{done.stderr}"
    assert examine(lab) == (0, {})


def test_plugins_that_are_installed_elsewhere(private_scene: Scene) -> None:
    """They are in /usr/lib/cni, as Debian's are; links make a daemon find them that looks in /opt/cni/bin."""
    lab = private_scene.lab
    lab.stop_daemon()
    lab.start_daemon("--cni-bin-dir", "/opt/cni/bin")
    name = private_scene.configure(bridge(private_scene.subnet()))
    refused = private_scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={name}")
    assert "`cni-bridge doctor` says where" in refused
    fix(lab, "plugins-elsewhere")
    private_scene.run(private_scene.network(name))


def test_a_bridge_with_another_address(private_scene: Scene) -> None:
    """The plugin refuses to add a second one."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    network = private_scene.network(private_scene.configure(bridge(subnet)))
    lab.docker("rm", "--force", private_scene.run(network).name)
    lab.run("ip", "address", "del", f"{subnet.gateway}/24", "dev", subnet.bridge)
    lab.run("ip", "address", "add", "10.99.0.1/16", "dev", subnet.bridge)
    error = private_scene.run_refusal(network)
    assert "already has an IP address different from" in error
    assert "`cni-bridge doctor` shows the address" in error
    fix(lab, "bridge-address")
    private_scene.run(network)


def test_stale_reservations(private_scene: Scene) -> None:
    """A reservation without a container, and one of a container that runs, which stays."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    name = private_scene.configure(bridge(subnet))
    network = private_scene.network(name)
    private_scene.run(network)
    sticky = private_scene.run(f"name={network},driver-opt=cni.sticky=web")
    lab.docker("rm", "--force", sticky.name)  # the key keeps its address
    directory = f"/var/lib/cni/networks/{name}"
    lab.run("touch", "-d", "1 hour ago", f"{directory}/10.80.{subnet.number}.2", f"{directory}/10.80.{subnet.number}.3")
    lab.write(f"{directory}/10.80.{subnet.number}.77", f"{'e' * 64}\r\neth0")
    assert examine(lab) == (0, {})  # it may belong to an ADD that runs now
    lab.run("touch", "-d", "1 hour ago", f"{directory}/10.80.{subnet.number}.77")
    fix(lab, "reservations-stale")
    kept = [f"10.80.{subnet.number}.2", f"10.80.{subnet.number}.3"]
    assert lab.run("ls", directory).stdout.split() == [*kept, "last_reserved_ip.0", "lock"]


def test_containers_that_did_not_start(private_scene: Scene) -> None:
    """Docker started one while the driver was down, and does not try again."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network()
    name = private_scene.create(network)
    lab.stop_daemon()
    assert private_scene.refusal("start", name)
    assert "containers-not-started" in examine(lab)[1]
    lab.start_daemon()
    fix(lab, "containers-not-started")
    assert lab.docker("inspect", "--format", "{{.State.Running}}", name).strip() == "true"


def test_an_mtu_above_the_uplinks(private_scene: Scene) -> None:
    """The command edits the list, and restarts the container, whose link has the uplink's MTU then."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    container = private_scene.run(private_scene.network(private_scene.configure(bridge(subnet))))
    lab.run("ip", "link", "set", private_scene.UPLINK, "mtu", "1400")
    lab.run("ip", "address", "add", "192.0.2.1/24", "dev", private_scene.UPLINK)
    lab.run("ip", "route", "add", "default", "via", "192.0.2.254")
    fix(lab, "mtu-above-uplink")
    assert "mtu 1400" in container.exec("ip", "link", "show", "eth0")


@pytest.mark.parametrize("table", ["filter", "nat"])
def test_emptied_chains(private_scene: Scene, table: str) -> None:
    """Another program has removed all rules of a table; the plugins make them again."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    network = private_scene.network(private_scene.configure([*bridge(subnet, ipv6=True), PORTMAP]))
    private_scene.run(network, "-p", "8611:80")
    assert examine(lab) == (0, {})
    lab.run("iptables", "-t", table, "-F")
    fix(lab, "rules-missing")


def test_emptied_chains_of_ptp(private_scene: Scene) -> None:
    """As for a bridge."""
    lab = private_scene.lab
    private_scene.run(private_scene.network(private_scene.configure(ptp(private_scene.subnet()))))
    assert examine(lab) == (0, {})
    lab.run("iptables", "-t", "nat", "-F")
    fix(lab, "rules-missing")


def test_without_iptables(private_scene: Scene) -> None:
    """A list that runs it is an error; one with the backends of nftables is none."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    private_scene.configure([*bridge(subnet), PORTMAP], name="watched")
    iptables = lab.run("sh", "-c", "readlink -f $(command -v iptables)").stdout.strip()
    lab.run("mount", "--bind", "/dev/null", iptables)
    try:
        _, found = examine(lab)
    finally:
        lab.run("umount", iptables)
    assert get_str(found["command-missing"], "subject") == "command iptables"
    assert get_str(found["command-missing"], "fix") == "apt-get install iptables"


def test_a_recipe_with_vrf(private_scene: Scene) -> None:
    """A list that no Docker network uses is no error, whatever the kernel lacks."""
    lab = private_scene.lab
    main, firewall = bridge(private_scene.subnet())
    private_scene.configure([main, firewall, {"type": "vrf", "vrfname": "red"}], name="watched")
    has_vrf = "NET_VRF=y" in lab.run("sh", "-c", "zcat /proc/config.gz || true").stdout
    _, found = examine(lab)
    kinds = {code: get_str(one, "severity") for code, one in found.items() if "module" in code}
    assert kinds == ({} if has_vrf else {"module-missing": "warning"})


@pytest.mark.engine_since("29", "has nftables as a backend")
def test_an_engine_with_nftables(private_scene: Scene) -> None:
    """While the kernel does not forward, dockerd refuses to start (IPv4 forwarding is disabled); then it does."""
    lab = private_scene.lab
    lab.stop_dockerd()
    lab.write("/etc/docker/daemon.json", {"firewall-backend": "nftables"})
    lab.run("sysctl", "-w", "net.ipv4.ip_forward=0")
    _, found = examine(lab)
    assert "engine-needs-forwarding" in found
    lab.run("sh", "-c", get_str(found["engine-needs-forwarding"], "fix"))
    lab.start_dockerd()
    assert "engine-needs-forwarding" not in examine(lab)[1]


def test_a_killed_connectivity_test(private_scene: Scene) -> None:
    """Its containers and its image are removed; those of a test that runs are no finding."""
    lab = private_scene.lab
    network, _ = private_scene.bridge_network()
    images = lab.docker("images", "--quiet", "--no-trunc")
    running = lab.spawn(sys.executable, "-m", "cnm_bridge", "test", network)
    wait_until(lambda: len(left_containers(lab)) > 0, "a container of the test")
    assert "test-left-behind" not in examine(lab)[1]
    running.kill(signal.SIGKILL)
    running.wait(60.0)
    wait_until(lambda: len(left_containers(lab)) > 0, "what is left")
    fix(lab, "test-left-behind")
    assert left_containers(lab) == []
    assert lab.docker("images", "--quiet", "--no-trunc") == images


def left_containers(lab: Lab) -> list[str]:
    """Return the names of the containers of `cni-bridge test`."""
    return lab.docker("ps", "--all", "--filter", "name=cni-bridge-test", "--format", "{{.Names}}").split()
