# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What several documents have, and how those with an entry for each endpoint are rendered: in slices of the event loop.

A thread would compete with the event loop for the interpreter, at each of the loop's turns.
"""

from collections.abc import Iterable, Mapping

from cni_bridge_spec import JsonObject, JsonValue, render_json
from cni_bridge_state import EndpointId, EndpointRecord, Phase
from cni_bridge_state.store import Store
from cnm_bridge.core.model.endpoint import Endpoint
from cnm_bridge.core.planning.link.endpoint_replies import known_addresses
from cnm_bridge.core.planning.options.cni_options import INLINE
from cnm_bridge.driver.endpoints.unpublished_ports import Unpublished
from cnm_bridge.driver.networks.configuration_watch import ConfigurationWatch
from cnm_bridge.driver.teardown.queue import TeardownQueue
from cnm_bridge.server.admin.errors import AdminError, ErrorKind
from cnm_bridge.system.scheduling.time_slice import TimeSlice


async def describe_networks(store: Store, watch: ConfigurationWatch) -> list[JsonValue]:
    """Return the networks as several documents have them."""
    outdated = await watch.outdated()
    return [
        {
            "id": network.id,
            "name": network.name,
            "configuration": network.configuration or network.name,
            "isInline": INLINE in network.options,
            "internal": network.internal,
            "outdatedEndpoints": outdated.get(network.id, 0),
        }
        for network in store.networks()
    ]


def get_endpoint(store: Store, parameters: Mapping[str, str]) -> EndpointRecord:
    """Return the record of the endpoint with the ID `id`.

    Raises:
        AdminError: There is none.
    """
    record = store.find_endpoint(EndpointId(parameters["id"]))
    if record is None:
        raise AdminError(ErrorKind.NOT_FOUND, f"there is no endpoint {parameters['id']}; its ID is needed in full")
    return record


def describe_endpoint(endpoint: Endpoint, unpublished: Unpublished) -> JsonObject:
    """Return an endpoint as several documents have it."""
    record = endpoint.record
    return {
        "id": record.id,
        "networkId": record.network_id,
        "phase": record.phase.value,
        "mode": record.attachment.mode.shown,
        "configuration": record.attachment.network or None,
        "addresses": [str(address) for address in known_addresses(endpoint)],
        "notPublished": unpublished.reasons.get(record.id) if record.phase is Phase.JOINED else None,
        "sandboxKey": record.sandbox_key,
    }


def describe_pending(teardowns: TeardownQueue) -> list[JsonValue]:
    """Return the teardowns that have failed; the others' first attempt is running, as after each DeleteEndpoint."""
    return [
        {"endpointId": endpoint_id, "attempts": pending.attempts, "error": pending.error}
        for endpoint_id, pending in teardowns.all.items()
        if pending.attempts
    ]


async def with_many(document: JsonObject, key: str, entries: Iterable[JsonObject]) -> bytes:
    """Return a document as JSON, with one further key whose value is a list of many entries.

    Args:
        document: Everything else, at least one key.
        key: The further key.
        entries: The list's entries, each made and rendered on its own.
    """
    time_slice = TimeSlice()
    rendered: list[bytes] = []
    for entry in entries:
        rendered.append(render_json(entry))
        await time_slice.pause()
    return b"".join((render_json(document)[:-1], f',"{key}":['.encode(), b",".join(rendered), b"]}"))
