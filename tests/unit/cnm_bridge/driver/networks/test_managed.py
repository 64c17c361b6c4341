# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Managed networks are created if Docker does not have them; a locked one has its configuration for itself."""

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from cni_bridge_state import NetworkId
from cnm_bridge.core.engine_facts import EngineNetwork
from cnm_bridge.core.errors import BadOption, EngineUnavailable, Refused
from cnm_bridge.core.settings import ManagedNetwork
from cnm_bridge.driver.networks.managed import ManagedNetworks
from cnm_bridge.system.engine import Engine

PODS = ManagedNetwork(name="kubernetes", configuration="pods", locked=True, options=(("cni.attach", "move"),))
OPTIONS = {"cni.network": "pods", "cni.attach": "move"}
FOUND = EngineNetwork(
    id="a1" * 32,
    name="kubernetes",
    driver="cni-bridge",
    internal=False,
    options=OPTIONS,
    pools=(),
    endpoints={},
)


class Docker(Engine):
    """An engine that keeps networks, and calls the driver while it creates one."""

    def __init__(self, *networks: EngineNetwork) -> None:
        super().__init__("unix:///none", 1.0)
        self.networks = {network.name: network for network in networks}
        self.managed: ManagedNetworks | None = None
        self.error: EngineUnavailable | None = None
        self.bodies: list[Mapping[str, Any]] = []

    async def find_network_named(self, name: str) -> EngineNetwork | None:
        """Return a network."""
        if self.error is not None:
            raise self.error
        return self.networks.get(name)

    async def create_network(self, body: Mapping[str, Any]) -> None:
        """Call the driver, then keep the network."""
        self.bodies.append(body)
        assert self.managed is not None
        try:
            self.managed.refuse_other(body["Options"]["cni.network"], body["Options"])
        except Refused as exc:
            raise EngineUnavailable(str(exc)) from exc
        self.networks[body["Name"]] = replace(
            FOUND, name=body["Name"], options=body["Options"], internal=body["Internal"], driver=body["Driver"]
        )


def manage(docker: Docker, *wanted: ManagedNetwork) -> ManagedNetworks:
    """Return managed networks of an engine."""
    docker.managed = ManagedNetworks(wanted, docker, "cni-bridge")
    return docker.managed


async def test_a_missing_network_is_created_once() -> None:
    """Docker receives its options, and no address pool, because addresses come from CNI."""
    docker = Docker()
    managed = manage(docker, PODS)
    await managed.create_missing()
    await managed.create_missing()
    assert [(body["Name"], body["Driver"], body["IPAM"], body["Options"]) for body in docker.bodies] == [
        ("kubernetes", "cni-bridge", {"Driver": "null"}, OPTIONS)
    ]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"driver": "bridge"}, "driver bridge"),
        ({"options": {"cni.network": "other"}}, "other values of cni.attach, cni.network"),
        ({"internal": True}, "internal = true"),
    ],
)
async def test_another_network_of_that_name_stays_and_is_reported_once(change: Mapping[str, Any], text: str) -> None:
    """It may be in use; the text says what to do."""
    docker = Docker(replace(FOUND, **change))
    managed = manage(docker, PODS)
    with capture_logs() as logs:
        await managed.create_missing()
        await managed.create_missing()
    assert not docker.bodies
    (entry,) = logs
    assert entry["event"] == "network.not_managed"
    assert text in entry["reason"]
    assert "docker network rm kubernetes" in entry["reason"]


@pytest.mark.parametrize(
    "container",
    [
        {"cni.network": "other"},
        {"cni.attach": "sandbox"},
        {"cni.args.k8s_pod_name": "web"},
        {"cni.bandwidth.ingress-rate": "10G", "cni.ips": "10.1.0.9"},
    ],
)
def test_a_container_cannot_replace_options_of_a_locked_network(container: Mapping[str, str]) -> None:
    """Known arguments in no spelling; it may repeat them, add others, and replace those of other networks."""
    options = (("cni.attach", "move"), ("cni.args.K8S_POD_NAME", "all"), ("cni.bandwidth.ingress-rate", "10M"))
    locked = replace(PODS, options=options)
    network = {"cni.network": "pods", **dict(options)}
    managed = manage(Docker(), locked)
    with pytest.raises(BadOption, match="network kubernetes is locked") as caught:
        managed.refuse_override(network, container)
    assert "other" not in str(caught.value)
    managed.refuse_override(network, {"cni.ips": "10.1.0.9", "cni.attach": "move", "cni.args.OTHER": "x"})
    managed.refuse_override({**network, "cni.ips": "10.1.0.9"}, container)
    manage(Docker(), replace(locked, locked=False)).refuse_override(network, container)


async def test_an_engine_that_does_not_answer_is_asked_again() -> None:
    """The reason is logged once."""
    docker = Docker()
    docker.error = EngineUnavailable("booting")
    managed = manage(docker, PODS)
    with capture_logs() as logs:
        await managed.create_missing()
        await managed.create_missing()
        docker.error = None
        await managed.create_missing()
    assert [entry["event"] for entry in logs] == ["network.not_managed", "network.managed_created"]


async def test_the_configuration_of_a_locked_network_is_refused_to_others() -> None:
    """Also to one that has the same options, and to one that has the configuration of its own name."""
    managed = manage(Docker(), PODS)
    await managed.create_missing()
    for options in (OPTIONS, {"cni.network": "pods"}):
        with pytest.raises(Refused, match="only network kubernetes may use it"):
            managed.refuse_other("pods", options)
    managed.refuse_other("other", {})
    managed.refuse_other(None, {})
    with pytest.raises(Refused, match="--network kubernetes"):
        managed.refuse_name("pods")
    managed.refuse_name("kubernetes")


def test_a_container_elsewhere_does_not_get_the_configuration_of_a_locked_network() -> None:
    """A container can name a configuration itself (`driver-opt=cni.network=pods`)."""
    managed = manage(Docker(), PODS)
    managed.refuse_container("pods", OPTIONS)
    managed.refuse_container("other", {})
    with pytest.raises(Refused, match="--network kubernetes"):
        managed.refuse_container("pods", {"cni.network": "other"})


@pytest.mark.parametrize("locked", [True, False])
async def test_a_network_that_is_removed_is_created_again(locked: bool) -> None:
    """Docker removes a locked one in spite of the refusal, and it is back at once; others at the next round."""
    docker = Docker()
    managed = manage(docker, replace(PODS, locked=locked))
    await managed.create_missing()
    docker.networks.clear()
    with pytest.raises(Refused, match="creates it again") if locked else nullcontext():
        managed.note_deleted(NetworkId(FOUND.id))
    assert managed.missing.is_set() is locked
    managed.note_deleted(NetworkId("b2" * 32))
    await managed.create_missing()
    assert list(docker.networks) == ["kubernetes"]
