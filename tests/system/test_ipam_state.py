# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Addresses that Docker has requested, when their records come from a copy, and when their owner is not known."""

import json
import sys
from collections.abc import Sequence

import pytest

from cni_bridge_spec import JsonObject, JsonValue, as_object, get_objects, get_str
from tests.lab import PLUGIN_SOCKET, Lab, wait_until
from tests.system.scene import Scene, bridge, wait_logged
from tests.system.test_ipam import address_of, network, reservations, section, write_section

SHORT_PAUSES = ("--reconcile-interval", "1", "--plugin-timeout", "4")
STATE = "/var/lib/cni-bridge"


def command(lab: Lab, *arguments: str) -> tuple[int, str]:
    """Run cni-bridge; return its exit status and all of its output."""
    done = lab.run(sys.executable, "-m", "cnm_bridge", *arguments, check=False)
    return done.returncode, done.stdout + done.stderr


def request(lab: Lab, method: str, body: JsonObject) -> JsonObject:
    """Call the daemon as an engine's IPAM does."""
    _, answer = lab.request(PLUGIN_SOCKET, "POST", f"/IpamDriver.{method}", body)
    return as_object(answer, method)


def unclaimed(lab: Lab) -> Sequence[JsonObject]:
    """Return what `cni-bridge cleanup --run` shows after a comparison."""
    done = lab.run(sys.executable, "-m", "cnm_bridge", "cleanup", "--run", "--json", check=False)
    return get_objects(as_object(json.loads(done.stdout), "what cleanup shows"), "unclaimedAddresses")


def engines(lab: Lab) -> list[JsonValue]:
    """Return the engine of each pool, None for one that is not known."""
    document = json.loads(lab.run(sys.executable, "-m", "cnm_bridge", "state", "export").stdout)
    return [one["engine"] for one in get_objects(as_object(document, "the state"), "pools")]


def make_old(lab: Lab, name: str) -> None:
    """Have a section's reservations look some minutes old, so that the doctor takes them into account."""
    lab.run("sh", "-c", f"touch -d '-5 min' /var/lib/cni/networks/{name}/*")


def dead(lab: Lab) -> Sequence[JsonObject]:
    """Return what the doctor finds about reservations."""
    done = lab.run(sys.executable, "-m", "cnm_bridge", "doctor", "--json", check=False)
    findings = get_objects(as_object(json.loads(done.stdout), "the report"), "findings")
    return [one for one in findings if get_str(one, "code") == "reservations-dead"]


@pytest.mark.long
def test_an_exported_state(private_scene: Scene) -> None:
    """It is imported into an empty directory: containers keep their addresses, and release them to the daemon."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    name = write_section(private_scene, section(subnet))
    made = network(private_scene, name)
    first, second = private_scene.run(made), private_scene.run(made)
    lab.write("/run/state.json", lab.run(sys.executable, "-m", "cnm_bridge", "state", "export").stdout)
    lab.stop_daemon()
    lab.run("sh", "-c", f"rm -r {STATE}/*")
    status, printed = command(lab, "state", "import", "/run/state.json")
    assert status == 0, printed
    assert "1 pool, 2 addresses" in printed
    lab.start_daemon()
    assert address_of(private_scene.run(made)) == f"10.80.{subnet.number}.4/24"
    lab.docker("rm", "-f", first.name, second.name)
    wait_until(lambda: reservations(lab, name) == [f"10.80.{subnet.number}.4"], "they are released")


@pytest.mark.long
def test_an_older_state(private_scene: Scene) -> None:
    """What has been released since is released again; what has come since is in use, and then unclaimed."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    lab.stop_daemon()
    lab.start_daemon(*SHORT_PAUSES)
    name = write_section(private_scene, section(subnet))
    made = network(private_scene, name)
    kept, gone = private_scene.run(made), private_scene.run(made)
    lab.write("/run/state.json", lab.run(sys.executable, "-m", "cnm_bridge", "state", "export").stdout)
    lab.docker("rm", "-f", gone.name)
    since = private_scene.run(made)
    address = address_of(since).partition("/")[0]
    lab.stop_daemon()
    status, printed = command(lab, "state", "import", "--replace", "/run/state.json")
    assert status == 0, printed
    lab.start_daemon(*SHORT_PAUSES)
    wait_logged(lab, "address.dead", timeout_s=60)
    assert len(reservations(lab, name)) == 2
    make_old(lab, name)
    assert dead(lab) == []  # a container has the address
    lab.docker("rm", "-f", since.name)
    make_old(lab, name)
    (found,) = dead(lab)
    assert address in get_str(found, "text")
    lab.run("sh", "-ec", get_str(found, "fix"))
    assert reservations(lab, name) == [address_of(kept).partition("/")[0]]


def test_a_reservation_that_host_local_did_not_complete(private_scene: Scene) -> None:
    """It was killed between making the file and writing it: the address is free again, without a network of ours."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    lab.stop_daemon()
    lab.start_daemon(*SHORT_PAUSES)
    name = write_section(private_scene, section(subnet))
    container = private_scene.run(network(private_scene, name))
    lab.write(f"/var/lib/cni/networks/{name}/10.80.{subnet.number}.99", "")
    wait_logged(lab, "reservation.unwritten", timeout_s=60)
    assert reservations(lab, name) == [address_of(container).partition("/")[0]]


@pytest.mark.long
def test_an_address_of_another_engine(private_scene: Scene) -> None:
    """It is only shown, as long as the pool may be another engine's; an operator releases it if nothing has it."""
    lab, subnet = private_scene.lab, private_scene.subnet()
    lab.stop_daemon()
    lab.start_daemon(*SHORT_PAUSES)
    name = private_scene.configure(bridge(subnet))
    made = network(private_scene, name, "--subnet", subnet.ipv4)
    container = private_scene.run(made)

    wait_until(lambda: engines(lab) != [None], "the pool is known to be the engine's", timeout_s=30)
    answer = request(
        lab,
        "RequestPool",
        {"AddressSpace": "CniLocal", "Pool": subnet.ipv4, "SubPool": "", "Options": {"cni.ipam": name}, "V6": False},
    )
    pool = get_str(answer, "PoolID")
    address = get_str(request(lab, "RequestAddress", {"PoolID": pool, "Address": ""}), "Address").partition("/")[0]
    wait_until(lambda: any(address in get_str(one, "what") for one in unclaimed(lab)), "it is shown", timeout_s=60)
    make_old(lab, name)
    assert dead(lab) == []
    (found,) = unclaimed(lab)
    container.in_network("ip", "address", "add", f"{address}/32", "dev", "eth0")
    status, printed = command(lab, "cleanup", "--run", get_str(found, "id"))
    assert (status, f"{address}/24 is in use" in printed) == (1, True), printed
    container.in_network("ip", "address", "del", f"{address}/32", "dev", "eth0")
    assert address in reservations(lab, name)
    status, printed = command(lab, "cleanup", "--run", get_str(found, "id"))
    assert status == 0, printed
    assert reservations(lab, name) == [address_of(container).partition("/")[0]]
    assert unclaimed(lab) == ()
    assert dead(lab) == []
    assert request(lab, "ReleasePool", {"PoolID": pool}) == {}
