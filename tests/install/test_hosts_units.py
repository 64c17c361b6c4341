# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What docs/hosts.md sets up for each boot, pasted on a system with systemd; `make test-deb` runs this (needs root)."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.install.machine import Machine, fetch_root
from tests.install.packages import RELEASES
from tests.lab.debian import FetchError
from tests.lab.waiting import wait_until
from tests.pages import read_blocks

pytestmark = pytest.mark.timeout(1800)  # a root directory is made

PAGE: Final = Path(__file__).parents[2] / "docs" / "hosts.md"
UNIT, LINKS = (block.text for block in read_blocks(PAGE, section="At boot"))
SYSTEM: Final = ("systemd", "systemd-sysv", "dbus", "docker.io", "iptables", "iproute2", "kmod", "openvswitch-switch")
RULES: Final = {
    "Routed": ("-s 10.60.0.0/16 -d 10.60.0.0/16", "-m conntrack --ctstate DNAT"),
    "Stretched": ("-s 10.61.0.0/24 -d 10.61.0.0/24", "-m conntrack --ctstate DNAT"),
    "OVN": ("-m conntrack --ctstate DNAT",),
}
GATEWAY: Final = "10.61.0.1/24"
SHOW: Final = "ip -json -details link show dev vx100 && ip -json -details link show dev br-lan"
UNUSED: Final = "reserved_bits"
"""Of a tunnel: which bits a packet must not have; networkd says expressly that it wants none of what has these bits."""
NOT_JSON: Final = "fan-map "
"""What Ubuntu's `ip` writes between two members of a tunnel's JSON."""
NO_UDEV: Final = "[Service]\nBindReadOnlyPaths=/sys\n"
"""networkd waits for udev, which the machine does not have, unless it cannot write to /sys, as in other containers."""
ETH1: Final = "[NetDev]\nName=eth1\nKind=dummy\n"


@pytest.fixture(name="machine", params=RELEASES)
def boot_machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """A minimal system with Docker and Open vSwitch."""
    suite = str(request.param)
    try:
        archive = fetch_root(suite, "hosts", SYSTEM)
    except FetchError as exc:
        pytest.skip(f"{suite} is not available: {exc}")
    with Machine(tmp_path / suite, archive) as machine:
        drop_in = machine.path("/etc/systemd/system/systemd-networkd.service.d/no-udev.conf")
        drop_in.parent.mkdir(parents=True)
        drop_in.write_text(NO_UDEV)
        machine.run("systemctl", "daemon-reload")
        yield machine


def test_stretched(machine: Machine) -> None:
    """Each boot makes the links that the page's commands make, and the rules; restarts change neither."""
    links, rules = (block.text for block in read_blocks(PAGE, section="Stretched"))
    typed = machine.run("unshare", "--net", "sh", "-ec", f"{links}{SHOW}").stdout
    paste(machine, LINKS)
    start_unit(machine, rules)
    check_rules(machine, "Stretched")

    machine.reboot()
    check_rules(machine, "Stretched")
    wait_until(partial(has_links, machine, typed), "the links", 30.0)
    assert is_active(machine, "systemd-networkd-wait-online")

    machine.run("ip", "address", "add", GATEWAY, "dev", "br-lan")  # as the plugin `bridge` does
    machine.run("systemctl", "restart", "docker", "systemd-networkd")
    check_rules(machine, "Stretched")
    wait_until(partial(has_links, machine, typed), "the links after a restart of networkd", 30.0)
    assert f"inet {GATEWAY}" in machine.run("ip", "address", "show", "dev", "br-lan").stdout


def test_ovn(machine: Machine) -> None:
    """The addresses and the rule are there after a boot, and after restarts of Open vSwitch and Docker."""
    _, bridges, addresses = (block.text for block in read_blocks(PAGE, section="OVN"))
    machine.path("/etc/systemd/network/eth1.netdev").write_text(ETH1)
    machine.run("systemctl", "enable", "--now", "systemd-networkd")
    machine.run("systemctl", "disable", "systemd-networkd-wait-online")  # it waits for links of networkd
    paste(machine, bridges)
    start_unit(machine, addresses)
    check_ovn(machine)

    machine.reboot()
    check_ovn(machine)
    for unit in ("openvswitch-switch", "docker"):
        machine.run("systemctl", "restart", unit)
        check_ovn(machine)


def paste(machine: Machine, block: str) -> None:
    """Run a block of the page."""
    machine.run("sh", "-ec", block)


def start_unit(machine: Machine, commands: str) -> None:
    """Make the unit that runs the last commands of a recipe at boot."""
    machine.path("/usr/local/sbin/cni-hosts").write_text(commands)
    paste(machine, UNIT)


def is_active(machine: Machine, unit: str) -> bool:
    """Return whether a unit has started."""
    return machine.run("systemctl", "is-active", unit, check=False).stdout == "active\n"


def check_rules(machine: Machine, section: str) -> None:
    """The unit is content, and each rule is there once."""
    wait_until(partial(is_active, machine, "cni-hosts"), "the unit", 30.0)
    shown = machine.run("iptables", "--list-rules", "DOCKER-USER").stdout.splitlines()
    assert {rule for rule in shown if rule.endswith("-j ACCEPT")} == {
        f"-A DOCKER-USER {rule} -j ACCEPT" for rule in RULES[section]
    }
    assert len(shown) == len(set(shown))


def check_ovn(machine: Machine) -> None:
    """The rule and both addresses are there, and the link has the MAC that OVN knows."""
    check_rules(machine, "OVN")
    assert "inet 10.98.0.1/24" in machine.run("ip", "address", "show", "dev", "br-phy").stdout
    shown = machine.run("ip", "address", "show", "dev", "ovn0").stdout
    assert "inet 10.62.0.1/24" in shown
    assert "link/ether 02:00:0a:3e:00:01" in shown


def has_links(machine: Machine, typed: str) -> bool:
    """Return whether the links are as the page's commands, typed in a namespace of their own, make them."""
    return describe(machine.run("sh", "-ec", SHOW).stdout) == describe(typed)


def describe(shown: str) -> Mapping[str, object]:
    """Return what counts of the links that `ip` shows, by their names."""
    links = [link for line in shown.replace(NOT_JSON, "").splitlines() for link in json.loads(line) if link]
    return {
        link["ifname"]: (
            link["mtu"],
            link.get("master"),
            {"UP", "LOWER_UP"} <= {*link["flags"]},
            link["linkinfo"]["info_kind"],
            [
                value
                for value in link["linkinfo"]["info_data"].items()
                if link["ifname"] == "vx100" and value[0] != UNUSED
            ],
            link["linkinfo"].get("info_slave_data", {}).get("learning"),
        )
        for link in links
    }
