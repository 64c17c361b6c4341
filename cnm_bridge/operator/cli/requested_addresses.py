# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The addresses that Docker has requested from the IPAM driver, with the containers that have them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, find_int, find_str, get_objects, get_str
from cnm_bridge.core.engine_facts import EngineIpamNetwork
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.core.ipam.pool import OPTION
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.containers import ENGINE_LIMIT_S
from cnm_bridge.operator.cli.output import UNKNOWN, Shown, Table, age
from cnm_bridge.system.engine import Engine

_ADDRESSES: Final = (
    *(("ADDRESS", "address"), ("CONTAINER", "container"), ("SECTION", "section"), ("POOL", "pool"), ("USE", "use")),
    *(("PLUGIN", "plugin"), ("AGE", "age"), ("PHASE", "phase"), ("ID", "id")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """The addresses that Docker has requested.

    Attributes:
        document: The daemon's list, `spec/admin/addresses.json`, with names of containers as far as they are known.
        notes: What the reader should know.
    """

    document: JsonObject
    notes: Sequence[str] = ()


def name_addresses(client: AdminClient, docker_host: str, *, limit_s: float = ENGINE_LIMIT_S) -> Addresses:
    """Ask the daemon for the addresses that Docker has requested, and an engine before 29.0 for their containers.

    Raises:
        DaemonError: The daemon does not answer.
    """
    document = client.get("addresses")
    if all(find_str(one, "name") for one in get_objects(document, "addresses") if _may_have_container(one)):
        return Addresses(document=document)
    settings = client.get("settings")
    driver = find_str(settings, "driver") or Path(get_str(settings, "socket")).stem
    try:
        networks = asyncio.run(Engine(docker_host, limit_s).ipam_networks(driver))
    except EngineUnavailable as exc:
        return Addresses(document=document, notes=(f"names of containers are not known: {exc}",))
    return Addresses(document=with_names(document, networks))


def with_names(document: JsonObject, networks: Sequence[EngineIpamNetwork]) -> JsonObject:
    """Return a list of addresses (`spec/admin/addresses.json`) with the containers that an engine's networks have."""
    return {**document, "addresses": [_with_name(one, networks) for one in get_objects(document, "addresses")]}


def _may_have_container(address: JsonObject) -> bool:
    return get_str(address, "use") == "any"


def _with_name(address: JsonObject, networks: Sequence[EngineIpamNetwork]) -> JsonObject:
    text, section = find_str(address, "address"), get_str(address, "section")
    if text is None or find_str(address, "name") or not _may_have_container(address):
        return address
    ip = ip_interface(text).ip
    of_section = (one for one in networks if one.options.get(OPTION, section) == section)
    return {**address, "name": next((one.containers[ip] for one in of_section if ip in one.containers), None)}


def show_addresses(addresses: Addresses) -> Shown:
    """Return the table of the addresses that Docker has requested."""
    rows: list[JsonObject] = [
        {**one, "container": _user_of(one), "age": age(find_int(one, "createdAt"))}
        for one in get_objects(addresses.document, "addresses")
    ]
    rows.sort(key=lambda row: (str(row["section"]), str(row["address"])))
    table = Table(columns=_ADDRESSES, rows=rows, optional=("id", "plugin"))
    return Shown(document=addresses.document, parts=[table], notes=addresses.notes)


def _user_of(address: JsonObject) -> str | None:
    """Return the container that has an address; "?" for an unknown one, or `--aux-address`; None for a gateway."""
    return find_str(address, "name") or (None if get_str(address, "use") == "gateway" else UNKNOWN)
