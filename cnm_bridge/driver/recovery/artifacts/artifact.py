# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An artifact: an object on the host that a plugin created for one container on one CNI network."""

from dataclasses import dataclass

__all__ = ["PluginArtifact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginArtifact:
    """An object that a plugin created, and should have removed.

    Attributes:
        network: The CNI network's name.
        container_id: The container ID that it was created for; for our own containers, the attachment's ID.
        what: A description that lets an operator find it: a path such as `/var/lib/cni/networks/lan/10.1.2.3`, or the
            command that would create the rule, `iptables -t nat -A POSTROUTING …`.
        address: The reserved address; None if it is not a reservation.
    """

    network: str
    container_id: str
    what: str
    address: str | None = None
