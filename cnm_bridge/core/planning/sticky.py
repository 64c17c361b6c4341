# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks plugins for what the last container with a key (`cni.sticky`) had, and stops asking; pure.

Nothing is reserved between two containers (docs/decisions/stickiness-is-a-memory.md). If another container has the
address by now, the IPAM plugin refuses it, and the next attempt asks for none.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from cni_bridge_spec import get_object, get_objects
from cni_bridge_state import EndpointRecord, StickyRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.errors import NULL_IPAM, Refused, endpoint_option
from cnm_bridge.core.lists.changes import without_address_args
from cnm_bridge.core.options.cni_options import STICKY

_ADDRESSES: Final = "ips"
_MAC: Final = "mac"
_TAKE_NO_REQUEST: Final[Mapping[str | None, str]] = {
    None: "it has no IPAM plugin; give cni.ips and --mac-address",
    "dhcp": "only its DHCP server can give the same address again; give "
    + endpoint_option("cni.dhcp.client-id", "KEY"),
    "static": "IPAM plugin static gives all containers the same addresses; give cni.ips and --mac-address",
    **{
        name: f"plugin {name} does not reserve an address that is asked for; leave it out"
        for name in ("weave-ipam", "weave-net", "whereabouts")
    },
}
"""The plugin that gives the addresses → why it cannot be asked for one, and what to do."""


def refuse_sticky(network: NetworkConfigurationList, *, has_pool: bool) -> None:
    """Refuse a key on a network whose addresses cannot be asked for.

    Raises:
        Refused: They cannot.
    """
    if has_pool:
        raise Refused(
            f"{STICKY} is not possible: Docker's IPAM chooses the addresses of this network; give --ip, or make the "
            f"network with {NULL_IPAM}"
        )
    ipam_type = next((plugin.ipam_type for plugin in network.plugins if plugin.ipam_type), None)
    main = network.plugins[0].type
    reason = _TAKE_NO_REQUEST.get(ipam_type or (main if main in _TAKE_NO_REQUEST else None))
    if reason is not None:
        raise Refused(f"{STICKY} is not possible for CNI configuration {network.name}: {reason}")


def without_request(record: EndpointRecord, *, keeps_mac: bool) -> EndpointRecord:
    """Return a record whose plugins are asked for no address because of its key, and for its MAC only if `keeps_mac`.

    `StickyRecord.addresses` stays: `EndpointRecord.missed_addresses` shows what it does not get.
    """
    attachment, sticky = record.attachment, record.attachment.sticky
    if sticky is None:
        return record
    dropped, snapshot = {"IP", _ADDRESSES}, record.snapshot
    if sticky.mac is not None and not keeps_mac:
        dropped |= {"MAC", _MAC}
        sticky = replace(sticky, mac=None)
        snapshot = None if snapshot is None else {**snapshot, "link": {**get_object(snapshot, "link"), "mac": None}}
    plugins = get_objects(attachment.configuration, "plugins")
    attachment = replace(
        attachment,
        configuration={**attachment.configuration, "plugins": [*map(without_address_args, plugins)]},
        args=tuple((key, value) for key, value in attachment.args if key not in dropped),
        capability_args={key: value for key, value in attachment.capability_args.items() if key not in dropped},
        sticky=sticky,
    )
    return replace(record, attachment=attachment, snapshot=snapshot)


def is_asking(sticky: StickyRecord | None) -> bool:
    """Return whether plugins are first asked for addresses because of a key."""
    return sticky is not None and bool(sticky.addresses)
