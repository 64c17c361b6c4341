# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A failed DEL is repeated after another container has received the address: that container keeps its rules.

`firewall` finds its rules by the address alone. The plugins here fail while a file exists.
"""

from collections.abc import Iterator
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_objects
from tests.lab import Lab, wait_until
from tests.system.calls import ask_status
from tests.system.scene import PREV_RESULT, Scene, Subnet, bridge

BROKEN: Final = "/run/broken"
FAIL: Final = f'[ "$CNI_COMMAND" = DEL ] && [ -e {BROKEN} ] && {{ echo "xtables lock is held" >&2; exit 1; }}'
PASS: Final = f'exec python3 -c "{PREV_RESULT}"'
LATE_BRIDGE: Final = f"""
IFS=:
for directory in $CNI_PATH; do
    [ -x "$directory/bridge" ] && bridge=$directory/bridge
done
"$bridge" || exit $?
{FAIL}
exit 0
"""
"""A wrapper of `bridge` that fails after `bridge` has completed its DEL."""
LIMIT_S: Final = 30.0


def rules_of(lab: Lab, address: str) -> list[str]:
    """Return the rules that allow the address to send and receive."""
    rules = lab.run("iptables", "-t", "filter", "-S").stdout.splitlines()
    return sorted(rule for rule in rules if f"{address}/32" in rule)


def pending(lab: Lab) -> list[JsonObject]:
    """Return the teardowns that have failed and are repeated."""
    return list(get_objects(ask_status(lab), "pendingTeardowns"))


def wait_failed(lab: Lab) -> None:
    """Wait until a teardown has failed."""
    wait_until(lambda: bool(pending(lab)), "a failed teardown", LIMIT_S)


def wait_repeated(lab: Lab) -> None:
    """Wait until each failed teardown has been repeated successfully."""
    wait_until(lambda: not pending(lab), "the teardown", LIMIT_S)


def fixed(address: str) -> JsonObject:
    """Return an IPAM part that gives the same address to every container, even to several at the same time."""
    return {"type": "static", "addresses": [{"address": f"{address}/24"}]}


def single(subnet: Subnet) -> JsonObject:
    """Return an IPAM part with one address, which it gives to one container at a time."""
    address = f"10.80.{subnet.number}.9"
    return {
        "type": "host-local",
        "ranges": [[{"subnet": subnet.ipv4, "rangeStart": address, "rangeEnd": address}]],
    }


@pytest.fixture
def broken(scene: Scene) -> Iterator[Scene]:
    """A scene with plugins that fail while the file `BROKEN` exists."""
    yield from _with_plugins(scene)


def _with_plugins(scene: Scene) -> Iterator[Scene]:
    scene.plugin("late-bridge", LATE_BRIDGE)
    scene.plugin("breaks", f"{FAIL}; {PASS}")
    yield scene
    scene.lab.remove(BROKEN)
    wait_repeated(scene.lab)


def test_bridge_fails_after_the_address_is_free(broken: Scene) -> None:
    """The next container receives the address; the repeated DEL of the first one does not remove its rules."""
    subnet = broken.subnet()
    main: JsonObject = {"type": "late-bridge", "bridge": subnet.bridge, "isGateway": True, "ipam": single(subnet)}
    network = broken.network(broken.configure([main, {"type": "firewall"}]))
    _repeat(broken, network, f"10.80.{subnet.number}.9")


@pytest.mark.parametrize("way", ["static", "--ip", "cni.ips"])
@pytest.mark.representatives("--ip")
def test_a_fixed_address_after_a_failed_delete(broken: Scene, way: str) -> None:
    """`firewall` runs only after a new container has received the address; the rules of that container stay."""
    lab, subnet = broken.lab, broken.subnet()
    address = f"10.80.{subnet.number}.9"
    ipam: JsonObject = fixed(address) if way == "static" else {"type": "static"}
    main: JsonObject = {**bridge(subnet)[0], "ipam": ipam, "capabilities": {"ips": way != "static"}}
    name = broken.configure([main, {"type": "firewall"}, {"type": "breaks"}])
    if way == "--ip":
        network = broken.docker_network(name, f"--subnet={subnet.ipv4}", f"--gateway={subnet.gateway}")
        _repeat(broken, network, address, "--ip", address)
    elif way == "cni.ips":
        network = broken.network(name, "-o", f"cni.ips={address}/24")
        _repeat(broken, network, address)
    else:
        _repeat(broken, broken.network(name), address)
    assert not rules_of(lab, address)


def _repeat(scene: Scene, network: str, address: str, *options: str) -> None:
    """Make a DEL be repeated while the next container has the address, and check the rules of that container."""
    lab = scene.lab
    first = scene.run(network, *options)
    rules = rules_of(lab, address)
    assert rules
    lab.write(BROKEN, "")
    lab.docker("rm", "-f", first.name)
    wait_failed(lab)
    second = scene.run(network, *options)
    assert [str(found.ip) for found in second.link().addresses] == [address]
    assert rules_of(lab, address) == rules
    lab.remove(BROKEN)
    wait_repeated(lab)
    assert rules_of(lab, address) == rules
    lab.docker("rm", "-f", second.name)
    wait_until(lambda: not rules_of(lab, address), "the end of the rules", LIMIT_S)
