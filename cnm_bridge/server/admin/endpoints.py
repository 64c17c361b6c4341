# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The list of endpoints, all about one of them, and whether it is still as its plugins made it; see `spec/admin`.

Nothing is changed. Names of containers are not in it: only the engine knows them, and the daemon does not ask it for
this. The plugins' own CHECK is run one plugin at a time, so that each failure is reported, and on one endpoint at a
time, so that the slots for Docker's calls stay free.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, get_list, get_objects
from cni_bridge_state import EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import CniError, ConfigurationDirectories, PluginFailed, Runtime
from cni_invoker.errors import VerbUnsupported
from cnm_bridge.core.checks import find_missing_rules, plan_checks
from cnm_bridge.core.endpoint import Endpoint
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link.endpoint_replies import known_addresses
from cnm_bridge.core.link.plan_sandbox import find_differences, find_missing_addresses, plan_sandbox
from cnm_bridge.core.link_state import Snapshot
from cnm_bridge.core.lists.plugins import find_missing_links, host_link
from cnm_bridge.core.planning.ports import CAPABILITY, plugins_without_delete
from cnm_bridge.driver.endpoints.after_join import Unpublished
from cnm_bridge.driver.networks.ways_out import WaysOut
from cnm_bridge.driver.recovery.artifacts import OwnedArtifacts, find_owned
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
            documents = (
                {**self._summary(endpoint), "dynamicAddresses": [*found.get(endpoint.altname, ())]}
                for endpoint in endpoints
            )
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
        owned = await find_owned(record)
        pending = self.teardowns.all.get(record.id)
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
            "owned": {"reservations": [*owned.reservations], "rules": [*owned.rules], "links": [*owned.links]},
            "teardown": None if pending is None else {"attempts": pending.attempts, "error": pending.error},
        }

    async def _find_dynamic(self, endpoints: Iterable[Endpoint]) -> Mapping[str, Sequence[str]]:
        """Return the addresses that the kernel has learnt, by the alternative name of the link."""
        joined = (endpoint for endpoint in endpoints if endpoint.record.phase is Phase.JOINED)
        found = await self.kernel.dynamic_addresses({one.altname: str(one.sandbox) for one in joined if one.sandbox})
        return {altname: [*map(str, addresses)] for altname, addresses in found.items()}

    def _summary(self, endpoint: Endpoint) -> JsonObject:
        attachment = endpoint.record.attachment
        sticky = attachment.sticky
        return {
            **describe_endpoint(endpoint, self.unpublished),
            "waysOut": [*self.ways_out.found.get(endpoint.id, ())],
            "hostLink": host_link(get_objects(attachment.configuration, "plugins")),
            "mac": _find_mac(endpoint),
            "sticky": None if sticky is None else {"key": sticky.key, "missed": [*endpoint.record.missed_addresses]},
            "ports": [*get_list(attachment.capability_args, CAPABILITY)],
            "createdAt": endpoint.record.created_at,
            "containerId": attachment.id,
        }

    def _plugins(self, endpoint: Endpoint) -> list[JsonValue]:
        """Return the plugins in the order of ADD, with what is known about their last execution of each verb."""
        record = endpoint.record
        never_run = plugins_without_delete(replace(record, deleted=()))
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
                "isAdded": index < record.added_plugins and index not in never_run,
                "isDeleted": index in record.deleted,
                "executions": last.get(plugin.type, {}),
            }
            for index, plugin in enumerate(endpoint.network.plugins)
        ]


def _find_mac(endpoint: Endpoint) -> str | None:
    if endpoint.snapshot is not None:
        return endpoint.snapshot.link.mac
    interfaces = endpoint.result.interfaces if endpoint.result else ()
    return next((interface.mac for interface in interfaces if interface.sandbox and interface.mac), None)


def _sync(endpoint: Endpoint) -> list[JsonValue]:
    """Return what is added to the sandbox, in words, beyond what libnetwork sets up there."""
    if endpoint.snapshot is None or endpoint.record.attachment.mode.in_sandbox:
        return []
    return [*plan_sandbox(endpoint.snapshot, internal=endpoint.record.internal).parts]


_LIMIT_S: Final = 20.0
"""Time limit of the plugins' CHECK; meanwhile the endpoint cannot be torn down."""

_Finding = tuple[str, str]
"""A difference: what was compared (`link`, `rule`, a plugin's type, …), and a text."""

_REBUILT: Final = "its record was lost and rebuilt, so ports, routes and most of what its plugins made are not checked"
_NO_SANDBOX: Final = "its sandbox is not known, so its link is not checked"


@dataclass(slots=True)
class EndpointChecks:
    """Checks endpoints."""

    store: Store
    runtime: Runtime
    kernel: Kernel
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def check(self, parameters: Mapping[str, str]) -> JsonObject:
        """Return the differences of the endpoint with the ID `id`.

        If its record changes meanwhile, they are discarded: a container that leaves differs from what was made.

        Raises:
            AdminError: There is no such endpoint.
        """
        record = get_endpoint(self.store, parameters)
        if record.phase is not Phase.JOINED:
            return _render(record, (), (f"it is {record.phase.value}, and only joined endpoints are checked",))
        async with self._turn:
            endpoint = Endpoint(record)
            notes: list[str] = []
            findings = [finding async for finding in self._findings(endpoint, await find_owned(record), notes)]
        if self.store.find_endpoint(record.id) != record:
            return _render(record, (), ("it has changed during the check",))
        return _render(record, findings, notes)

    async def _findings(self, endpoint: Endpoint, owned: OwnedArtifacts, notes: list[str]) -> AsyncIterator[_Finding]:
        found = await self._look(endpoint)
        if endpoint.snapshot is None:
            notes.append(_REBUILT)
        async for finding in self._missing_links(endpoint):
            yield finding
        if endpoint.sandbox is None:
            notes.append(_NO_SANDBOX)
        elif found is None:
            yield "link", f"it is not in the sandbox {endpoint.sandbox}"
        else:
            made = await self._made(endpoint, endpoint.sandbox)
            for finding in _differences(endpoint, made, found):
                yield finding
        for finding in _missing(endpoint, owned, notes):
            yield finding
        if found is not None:
            async for finding in self._plugins(endpoint, found, notes):
                yield finding

    async def _missing_links(self, endpoint: Endpoint) -> AsyncIterator[_Finding]:
        if not [*find_missing_links(endpoint.network, ())]:
            return
        links = await self.kernel.host_links()
        existing = frozenset(name for link in links for name in (link.state.name, *link.altnames))
        for name, what in find_missing_links(endpoint.network, existing, in_use=True):
            yield "host", f"the host has no link {name}, the {what}"

    async def _made(self, endpoint: Endpoint, sandbox: Path) -> Snapshot | None:
        """Return what the plugins made, as the sandbox allows it; None if that is not known."""
        try:
            return None if endpoint.snapshot is None else await self.kernel.as_allowed(sandbox, endpoint.snapshot)
        except KernelError:
            return endpoint.snapshot

    async def _look(self, endpoint: Endpoint) -> Snapshot | None:
        if endpoint.sandbox is None:
            return None
        try:
            return await self.kernel.link_in_sandbox(endpoint.sandbox, endpoint.altname).look()
        except KernelError:
            return None

    async def _plugins(self, endpoint: Endpoint, found: Snapshot, notes: list[str]) -> AsyncIterator[_Finding]:
        """Run the CHECK of each plugin of the list."""
        if endpoint.network.disable_check:
            notes.append("the list has disableCheck, so no plugin was asked")
            return
        for one in plan_checks(endpoint, found):
            try:
                async with asyncio.timeout(_LIMIT_S):
                    await self.runtime.check(one.network, one.attachment, one.result)
            except VerbUnsupported as exc:
                notes.append(f"no plugin was asked: {exc}")
                return
            except CniError as exc:
                if isinstance(exc, PluginFailed) and exc.crash is not None:
                    notes.append(f"plugin {one.type}: its CHECK crashed ({exc.crash}), so what it made is not checked")
                else:
                    yield one.type, str(exc)
            except TimeoutError:
                yield one.type, f"CHECK did not end within {_LIMIT_S:g} s"


def _differences(endpoint: Endpoint, made: Snapshot | None, found: Snapshot) -> Iterator[_Finding]:
    """Yield what the link in the sandbox lacks."""
    if made is None:
        return find_missing_addresses(known_addresses(endpoint), found)
    is_moved = not endpoint.record.attachment.mode.in_sandbox
    return find_differences(made, found, internal=endpoint.record.internal, is_moved=is_moved)


def _missing(endpoint: Endpoint, owned: OwnedArtifacts, notes: list[str]) -> Iterator[_Finding]:
    plugins, addresses = get_objects(endpoint.record.attachment.configuration, "plugins"), known_addresses(endpoint)
    if shutil.which("iptables-save") is None:
        notes.append("rules are not examined, because there is no iptables-save")
        return
    # The ports of a rebuilt record are for DEL only.
    given = {} if endpoint.snapshot is None else endpoint.record.attachment.capability_args
    for one in find_missing_rules(plugins, addresses, given, owned.rules):
        yield "rule", f"{one} is missing"


def _render(record: EndpointRecord, findings: Iterable[_Finding], notes: Iterable[str]) -> JsonObject:
    return {
        "id": record.id,
        "phase": record.phase.value,
        "findings": [{"about": about, "what": what} for about, what in findings],
        "notes": [*notes],
    }
