# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The list of endpoints, and everything about one of them; see `spec/admin/endpoints.json` and `endpoint.json`.

Names of containers are not in it: only the engine knows them, and the daemon does not ask it for this.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cni_bridge_spec import JsonObject, JsonValue, get_list, get_objects
from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.link.plan_sandbox import plan_sandbox
from cnm_bridge.core.lists.plugins import host_link
from cnm_bridge.core.planning.ports import CAPABILITY
from cnm_bridge.driver.endpoints.after_join import Unpublished
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.driver.recovery.artifacts import HostArtifacts
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.documents import describe_endpoint, describe_networks, get_endpoint, with_many
from cnm_bridge.system.journal import Journal
from cnm_bridge.system.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointDocuments:
    """Builds the documents."""

    store: Store
    kernel: Kernel
    unpublished: Unpublished
    ways_out: WaysOut
    teardowns: TeardownQueue
    journal: Journal
    directories: ConfigurationDirectories

    async def render_list(self, parameters: Mapping[str, str]) -> bytes:
        """Return the list as JSON; with `dynamic=1` also the dynamic addresses, for which each sandbox is entered."""
        endpoints = [Endpoint(record) for record in self.store.endpoints()]
        documents: Iterable[JsonObject] = map(self._summary, endpoints)
        if parameters.get("dynamic") == "1":
            found = await self._find_dynamic(endpoints)
            documents = ({**self._summary(one), "dynamicAddresses": [*found.get(one.altname, ())]} for one in endpoints)
        networks = await describe_networks(self.store, self.directories)
        return await with_many({"networks": networks}, "endpoints", documents)

    async def describe(self, parameters: Mapping[str, str]) -> JsonObject:
        """Return everything about the endpoint with the ID `id`.

        Raises:
            AdminError: There is none.
        """
        record = get_endpoint(self.store, parameters)
        endpoint = Endpoint(record)
        network = self.store.find_network(record.network_id)
        attachment = record.attachment
        owned = await (await HostArtifacts.read([record])).find(record)
        return {
            **self._summary(endpoint),
            "dynamicAddresses": [*(await self._find_dynamic([endpoint])).get(endpoint.altname, ())],
            "networkName": network.name if network else None,
            "modeReason": attachment.mode_reason or None,
            "internal": record.internal,
            "cniVersion": attachment.cni_version,
            "containerId": attachment.id,
            "netns": attachment.netns,
            "args": [{"key": key, "value": value} for key, value in attachment.args],
            "capabilityArgs": attachment.capability_args,
            "list": attachment.configuration,
            "plugins": self._plugins(endpoint),
            "reservation": attachment.reservation,
            "result": record.result,
            "sync": _sync(endpoint),
            "owned": {
                "reservations": list(owned.reservations),
                "rules": list(owned.rules),
                "links": list(owned.links),
            },
            "teardown": self._teardown(record.id),
        }

    async def _find_dynamic(self, endpoints: Iterable[Endpoint]) -> Mapping[str, Sequence[str]]:
        """Return the addresses that the kernel has learnt, by the alternative name of the link."""
        joined = (one for one in endpoints if one.record.phase is Phase.JOINED)
        found = await self.kernel.dynamic_addresses({one.altname: str(one.sandbox) for one in joined if one.sandbox})
        return {altname: [*map(str, addresses)] for altname, addresses in found.items()}

    def _summary(self, endpoint: Endpoint) -> JsonObject:
        attachment = endpoint.record.attachment
        return {
            **describe_endpoint(endpoint, self.unpublished),
            "waysOut": [*self.ways_out.found.get(endpoint.id, ())],
            "hostLink": host_link(get_objects(attachment.configuration, "plugins")),
            "mac": _find_mac(endpoint),
            "sticky": _describe_sticky(endpoint.record),
            "ports": [*get_list(attachment.capability_args, CAPABILITY)],
            "createdAt": endpoint.record.created_at,
            "containerId": attachment.id,
        }

    def _plugins(self, endpoint: Endpoint) -> list[JsonValue]:
        """Return the plugins in the order of ADD, with what is known about their last execution of each verb."""
        record = endpoint.record
        last: dict[str, dict[str, JsonValue]] = {}
        for event in self.journal:
            if event.name == "plugin.executed" and event.facts["containerId"] == record.attachment.id:
                known = last.setdefault(str(event.facts["plugin"]), {})
                known[str(event.facts["verb"])] = {
                    key: value for key, value in event.as_json().items() if key in {"time", "outcome", "durationMs"}
                }
        return [
            {
                "type": plugin.type,
                "isAdded": index < record.added_plugins,
                "isDeleted": index in record.deleted,
                "executions": last.get(plugin.type, {}),
            }
            for index, plugin in enumerate(endpoint.network.plugins)
        ]

    def _teardown(self, endpoint_id: EndpointId) -> JsonObject | None:
        pending = self.teardowns.all.get(endpoint_id)
        return None if pending is None else {"attempts": pending.attempts, "error": pending.error}


def _describe_sticky(record: EndpointRecord) -> JsonObject | None:
    sticky = record.attachment.sticky
    return None if sticky is None else {"key": sticky.key, "missed": [*record.missed_addresses]}


def _find_mac(endpoint: Endpoint) -> str | None:
    if endpoint.snapshot is not None:
        return endpoint.snapshot.link.mac
    interfaces = endpoint.result.interfaces if endpoint.result else ()
    return next((one.mac for one in interfaces if one.sandbox and one.mac), None)


def _sync(endpoint: Endpoint) -> list[JsonValue]:
    """Return what is added to the sandbox, in words, beyond what libnetwork sets up there."""
    if endpoint.snapshot is None or endpoint.record.attachment.mode.in_sandbox:
        return []
    return [*plan_sandbox(endpoint.snapshot, internal=endpoint.record.internal).parts]
