# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin artifact: something on the host that a plugin made for one container on one CNI network."""

from dataclasses import dataclass

__all__ = ["PluginArtifact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginArtifact:
    """Something that a plugin made and that DEL must remove.

    Attributes:
        network: The CNI network's name.
        container_id: The CNI container ID; for our attachments, Docker's endpoint ID.
        what: Where to find it, e.g. `/var/lib/cni/networks/lan/10.1.2.3`, or the command that would make it, e.g.
            `iptables -t nat -A POSTROUTING …`.
        address: The reserved address; None if it is not a reservation.
    """

    network: str
    container_id: str
    what: str
    address: str | None = None
