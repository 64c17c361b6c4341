# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's names for what `cni-egress` knows by the names of CNI lists and the IDs of endpoints."""

from collections.abc import Mapping

from cni_bridge_spec import JsonObject, find_str, get_objects, get_str
from cnm_bridge.core.errors import UnknownName
from cnm_bridge.operator.cli.containers import Inventory
from cnm_bridge.operator.cli.output import SHORT, UNKNOWN
from cnm_bridge.operator.egress import list_egress

__all__ = ["GuardedNames"]


class GuardedNames:
    """Docker's names of networks and containers.

    Args:
        inventory: The endpoints of the daemon, and their containers.
    """

    def __init__(self, inventory: Inventory) -> None:
        self.inventory = inventory
        endpoints = get_objects(self.inventory.document, "endpoints")
        self._endpoints = {find_str(one, "containerId") or get_str(one, "id"): one for one in endpoints}

    @property
    def networks(self) -> Mapping[str, str]:
        """The names of networks by ID."""
        return self.inventory.networks

    def configuration(self, network: str) -> str:
        """Return the name of the list of a network; errors as in `Inventory.find_network`."""
        network_id = self.inventory.find_network(network)
        documents = {get_str(one, "id"): one for one in get_objects(self.inventory.document, "networks")}
        return find_str(documents[network_id], "configuration") or self.networks[network_id]

    def network_of(self, container_id: str) -> str:
        """Return the name of the network of a CNI container; empty for one of another runtime."""
        endpoint = self._endpoints.get(container_id)
        return "" if endpoint is None else self.networks[get_str(endpoint, "networkId")]

    def container(self, container_id: str) -> str:
        """Return the name of a CNI container, or the beginning of its ID; `UNKNOWN` without an ID."""
        endpoint = self._endpoints.get(container_id, {"id": container_id})
        found = self.inventory.containers.get(get_str(endpoint, "id"))
        return found.name if found is not None else container_id[:SHORT] or UNKNOWN

    def find(self, name: str) -> tuple[str, ...]:
        """Return the IDs of the guarded CNI containers that a name, an address or an ID stands for.

        Raises:
            UnknownName: There are none.
        """
        guarded = {get_str(it, "containerId") for one in list_egress("ls") for it in get_objects(one, "attachments")}
        named = self.inventory.find(name)
        found = tuple(one for one, endpoint in self._endpoints.items() if endpoint["id"] in named and one in guarded)
        if not found:
            raise UnknownName(f"{name} is on no guarded network; `cni-bridge egress ls` shows all")
        return found

    def row(self, attachment: JsonObject) -> JsonObject:
        """Return an attachment with the name of its container."""
        return {**attachment, "container": self.container(get_str(attachment, "containerId"))}
