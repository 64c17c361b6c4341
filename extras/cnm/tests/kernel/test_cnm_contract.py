# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's contract as a Docker network driver: `cnm`'s client calls one daemon, without dockerd.

A call takes milliseconds, and the life of an endpoint what its plugin takes.
"""

import itertools
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_object, get_str, render_json
from cni_plugin import CallError
from cnm_plugin.driver import Driver, DriverAddress
from cnm_plugin.messages import identity
from tests.lab.unix_http import is_answering
from tests.lab.waiting import wait_until

NETWORK: Final = identity("contract")
NUMBERS: Final = itertools.count()


@pytest.fixture(name="driver", scope="module")
def start_daemon(private_namespaces: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    """A daemon without an engine, which has a network; its bridge exists as long as it runs."""
    assert private_namespaces
    directory = tmp_path_factory.mktemp("contract")
    inner: JsonObject = {
        "cniVersion": "1.0.0",
        "name": "inner",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni-test0",
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(directory / "ips"),
                    "ranges": [[{"subnet": "10.77.0.0/24"}]],
                },
            }
        ],
    }
    (directory / "net.d").mkdir()
    (directory / "net.d/inner.conflist").write_bytes(render_json(inner))
    answers = directory / "driver.sock"
    words: dict[str, Path | str] = {
        "socket": answers,
        "state-dir": directory / "state",
        "cni-conf-dir": directory / "net.d",
    }
    words |= {"run-dir": Path("/run/cni-bridge"), "docker-host": f"unix://{directory}/none"}
    command = (str(Path(sys.executable).with_name("cni-bridge")), "serve")
    subprocess.run(["ip", "link", "add", "cni-test0", "type", "bridge"], check=True)
    with subprocess.Popen([*command, *(f"--{name}={value}" for name, value in words.items())]) as daemon:
        try:
            wait_until(lambda: is_answering(answers, "POST", "/Plugin.Activate"), "the daemon's answer")
            driver = Driver("cni-bridge", DriverAddress(path=str(answers)))
            options: JsonObject = {"com.docker.network.generic": {"cni.network": "inner"}}
            pool: JsonObject = {"AddressSpace": "null", "Pool": "0.0.0.0/0"}
            driver.call("CreateNetwork", {"NetworkID": NETWORK, "Options": options, "IPv4Data": [pool], "IPv6Data": []})
            yield driver
            driver.call("DeleteNetwork", {"NetworkID": NETWORK})
        finally:
            daemon.terminate()
            assert daemon.wait(60) == 0
    subprocess.run(["ip", "link", "delete", "cni-test0"], check=True)


@pytest.fixture(name="endpoint")
def name_endpoint() -> JsonObject:
    """The IDs of an endpoint that no other test has."""
    return {"NetworkID": NETWORK, "EndpointID": identity("contract", str(next(NUMBERS)))}


@pytest.fixture(name="created")
def create_endpoint(driver: Driver, endpoint: JsonObject) -> Iterator[JsonObject]:
    """What CreateEndpoint answers; the endpoint is deleted afterwards."""
    answer = driver.call("CreateEndpoint", {**endpoint, "Options": {}, "Interface": {}})
    yield get_object(answer, "Interface")
    driver.call("DeleteEndpoint", endpoint)


def test_the_handshake(driver: Driver) -> None:
    """It is a network driver, with networks of this host."""
    driver.activate()
    assert driver.call("GetCapabilities", None)["Scope"] == "local"


def test_an_endpoint_has_an_address_and_a_mac(created: JsonObject) -> None:
    """The caller assigned none, so the reply has both."""
    assert get_str(created, "Address").startswith("10.77.0.")
    assert len(get_str(created, "MacAddress").split(":")) == 6


def test_join_names_the_link(driver: Driver, endpoint: JsonObject, created: JsonObject) -> None:
    """The link is there to be moved, and Leave may be repeated."""
    assert created
    joined = driver.call("Join", {**endpoint, "SandboxKey": "/run/netns/contract", "Options": {}})
    name = get_object(joined, "InterfaceName")
    assert get_str(name, "SrcName") in {link for _, link in socket.if_nameindex()}
    assert get_str(name, "DstPrefix") == "eth"
    for _ in range(2):
        driver.call("Leave", endpoint)


def test_operational_information(driver: Driver, endpoint: JsonObject, created: JsonObject) -> None:
    """It is an object, and the endpoint need not have joined."""
    assert created
    assert get_object(driver.call("EndpointOperInfo", endpoint), "Value") is not None


def test_an_endpoint_that_exists(driver: Driver, endpoint: JsonObject, created: JsonObject) -> None:
    """A second CreateEndpoint does not give it another address."""
    again = driver.call("CreateEndpoint", {**endpoint, "Options": {}, "Interface": {}})
    assert get_object(again, "Interface")["Address"] == created["Address"]


def test_an_unknown_endpoint_cannot_join(driver: Driver, endpoint: JsonObject) -> None:
    """The error names it."""
    with pytest.raises(CallError, match=get_str(endpoint, "EndpointID")[:12]):
        driver.call("Join", {**endpoint, "SandboxKey": "/run/netns/contract", "Options": {}})


def test_an_unknown_endpoint_has_no_information(driver: Driver, endpoint: JsonObject) -> None:
    """The caller of EndpointOperInfo asks for what there is to show, so it is no error."""
    assert get_object(driver.call("EndpointOperInfo", endpoint), "Value") == {}


@pytest.mark.parametrize("method", ["Leave", "DeleteEndpoint"])
def test_what_is_gone_already(driver: Driver, endpoint: JsonObject, method: str) -> None:
    """Removing it succeeds: the caller may repeat what it has not seen an answer to."""
    driver.call(method, endpoint)


def test_an_unknown_network(driver: Driver, endpoint: JsonObject) -> None:
    """No endpoint is created on it."""
    with pytest.raises(CallError, match="network"):
        driver.call("CreateEndpoint", {**endpoint, "NetworkID": identity("another"), "Options": {}, "Interface": {}})
