# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A trace: something on the host that a plugin made for one container on one CNI network."""

from dataclasses import dataclass

__all__ = ["PluginArtifact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginArtifact:
    """Something that a plugin made, and should have removed.

    Attributes:
        network: The CNI network's name.
        container_id: The container ID it was made for; of ours, Docker's endpoint ID.
        what: How an operator finds it, e.g. `/var/lib/cni/networks/lan/10.1.2.3`, or a rule with the command that would
            make it: `iptables -t nat -A POSTROUTING …`.
        address: The address that is reserved; None for all else.
    """

    network: str
    container_id: str
    what: str
    address: str | None = None
