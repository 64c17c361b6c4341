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

from cni_bridge_spec import JsonObject, find_object, find_str, get_objects
from cni_bridge_state import AttachmentId
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cni_invoker.errors import PluginError, PluginFailed, PluginTimeout
from cnm_bridge.core.lists.changes import ipam_configuration, with_plugins

_DHCP: Final = "dhcp"
_SOCKET: Final = "/run/cni/dhcp.sock"
"""Where the daemon listens if the list does not say (plugins 1.1.1 and 1.9.1, `defaultSocketPath`)."""
_LONGEST: Final = 254

LEASE_LIMIT_S: Final = 25.0
"""Limit for an ADD that gets a lease. Docker gives up its call of a managed plugin after 30 s (`docker plugin enable
--timeout`), and repeats it without a body."""
_GIVEN_UP: Final = "no more tries"
"""The daemon's answer when no server has given an address (1.1.1 and 1.9.1, `errNoMoreTries`). It has no code."""


def find_dhcp(network: NetworkConfigurationList) -> PluginConfiguration | None:
    """Return the plugin of a list whose IPAM plugin is `dhcp`, None if there is none."""
    return next((plugin for plugin in network.plugins if plugin.ipam_type == _DHCP), None)


def daemon_socket(plugin: PluginConfiguration) -> Path:
    """Return the socket of the daemon that a plugin with DHCP uses."""
    return _socket_of(find_object(plugin.document, "ipam") or {})


def find_daemon_socket(configuration: JsonObject) -> Path | None:
    """Return the socket of the daemon that a stored list uses, None if the list has no DHCP.

    The document is read as it is: the lists of thousands of records are looked at in one go, and a typed list takes ten
    times as long.
    """
    for plugin in get_objects(configuration, "plugins"):
        ipam = find_object(plugin, "ipam") or {}
        if find_str(ipam, "type") == _DHCP:
            return _socket_of(ipam)
    return None


def _socket_of(ipam: JsonObject) -> Path:
    return Path(find_str(ipam, "daemonSocketPath") or _SOCKET)


def lease_list(network: NetworkConfigurationList, plugin: PluginConfiguration) -> NetworkConfigurationList:
    """Return a list that has only the IPAM plugin of a plugin: its ADD gets the lease, its DEL releases it.

    The IPAM plugin receives what the plugin passes to it (CNI SPEC §4), so the daemon finds the same lease.
    """
    return with_plugins(network, [ipam_configuration(plugin)])


def explain_no_lease(plugin: PluginConfiguration, error: PluginError) -> str | None:
    """Return what a failed ADD means, if it got no lease; None if it failed for another reason."""
    if error.plugin not in {plugin.type, _DHCP}:
        return None
    if isinstance(error, PluginTimeout) and error.started:
        limit = f" within {error.timeout_s:g} s"
    elif isinstance(error, PluginFailed) and _GIVEN_UP in error.msg:
        limit = ""
    else:
        return None
    link = find_str(plugin.document, "master") or find_str(plugin.document, "bridge")
    lan = f"the LAN of {link}" if link else "the LAN"
    return (
        f"IPAM plugin dhcp: no DHCP server gave an address{limit}; check that a server answers on {lan}, that its "
        "range has a free address, and that no firewall of this host drops its answers; the log of the CNI DHCP daemon "
        f"shows each attempt (journalctl -u cni-bridge-dhcp) ({error})"
    )


def attachment_with_identifier(network: str, identifier: str) -> AttachmentId:
    """Return the ID of the attachment to a CNI network that has a client identifier, whichever endpoint it is of."""
    return AttachmentId(sha256(f"{network}/{identifier}".encode()).hexdigest())


def client_identifier(attachment_id: str, network: str, ifname: str) -> str:
    """Return the client identifier that the server receives, after a byte 0: the first 254 characters of this."""
    return f"{attachment_id}/{network}/{ifname}"[:_LONGEST]
