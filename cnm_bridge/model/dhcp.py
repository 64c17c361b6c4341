# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Lists whose addresses come from the LAN's DHCP server, through the IPAM plugin `dhcp`; pure.

`dhcp` passes each request to a daemon of the CNI project, which keeps the leases in memory only. The daemon identifies
a lease, to itself and to the server, by container ID, network and link (plugins 1.1.1 and 1.9.1, `generateClientID`).
An identifier given in the configuration (`ipam.provide`) replaces it in DISCOVER and REQUEST, but not in RELEASE, nor
in the renewals of 1.1.1, so that the server ignores these. So a stable identifier needs a stable container ID.
"""

from hashlib import sha256
from pathlib import Path
from typing import Final

from cni_bridge_spec import find_object, find_str
from cni_bridge_state import AttachmentId
from cni_invoker import NetworkConfigurationList
from cni_invoker.advanced import PluginConfiguration
from cnm_bridge.model.reserved_list import ipam_configuration

__all__ = ["attachment_with_identifier", "client_identifier", "daemon_socket", "find_dhcp", "lease_list"]

_DHCP: Final = "dhcp"
_SOCKET: Final = "/run/cni/dhcp.sock"
"""Where the daemon listens if the list does not say (plugins 1.1.1 and 1.9.1, `defaultSocketPath`)."""
_LONGEST: Final = 254


def find_dhcp(network: NetworkConfigurationList) -> PluginConfiguration | None:
    """Return the plugin of a list whose IPAM plugin is `dhcp`, None if there is none."""
    return next((plugin for plugin in network.plugins if plugin.ipam_type == _DHCP), None)


def daemon_socket(plugin: PluginConfiguration) -> Path:
    """Return the socket of the daemon that a plugin with DHCP uses."""
    return Path(find_str(find_object(plugin.document, "ipam") or {}, "daemonSocketPath") or _SOCKET)


def lease_list(network: NetworkConfigurationList, plugin: PluginConfiguration) -> NetworkConfigurationList:
    """Return a list that has only the IPAM plugin of a plugin: its ADD gets the lease, its DEL releases it.

    The IPAM plugin receives what the plugin passes to it (CNI SPEC §4), so the daemon finds the same lease.
    """
    document = {**network.document, "plugins": [ipam_configuration(plugin)]}
    return NetworkConfigurationList.from_document(document, source=network.source)


def attachment_with_identifier(network: str, identifier: str) -> AttachmentId:
    """Return the ID of the attachment to a CNI network that has a client identifier, whichever endpoint it is of."""
    return AttachmentId(sha256(f"{network}/{identifier}".encode()).hexdigest())


def client_identifier(attachment_id: str, network: str, ifname: str) -> str:
    """Return the client identifier that the server receives, after a byte 0: the first 254 characters of this."""
    return f"{attachment_id}/{network}/{ifname}"[:_LONGEST]
