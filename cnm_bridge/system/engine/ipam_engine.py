# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Queries to the Docker Engine API about networks of any driver whose addresses come from an IPAM driver."""

from collections.abc import Iterator
from typing import Final

from aiodocker import DockerError
from aiodocker.networks import DockerNetwork

from cni_bridge_spec import JsonError, JsonObject, get_str
from cnm_bridge.core.engine_facts.ipam_network import EngineIpamNetwork, has_ipam_driver
from cnm_bridge.system.engine.client import Engine

_NOT_FOUND: Final = 404


class IpamEngine(Engine):
    """A client of one Docker Engine that also lists the networks of an IPAM driver."""

    async def ipam_networks(self, driver: str) -> tuple[EngineIpamNetwork, ...]:
        """Return the networks whose IPAM driver has this name, with the addresses that they have.

        Raises:
            EngineUnavailable: There is no valid answer.
        """
        found: list[EngineIpamNetwork] = []
        async with self._asked() as docker:
            listed: object = await docker.networks.list()
            with self._read():
                ids = [get_str(one, "Id") for one in _objects(listed) if has_ipam_driver(one, driver)]
            for network_id in ids:
                try:
                    answer: object = await DockerNetwork(docker, network_id).show()  # type: ignore[no-untyped-call]
                except DockerError as exc:
                    if exc.status == _NOT_FOUND:  # it was removed meanwhile
                        continue
                    raise
                with self._read():
                    found.extend(EngineIpamNetwork.from_json(one) for one in _objects([answer]))
        return tuple(found)


def _objects(answer: object) -> Iterator[JsonObject]:
    if not isinstance(answer, list):
        raise JsonError("the answer to GET /networks must be an array")
    for one in answer:
        if not isinstance(one, dict):
            raise JsonError("each network must be an object")
        yield one
