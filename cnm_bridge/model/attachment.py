# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""From an endpoint's record to what CNI calls an attachment; pure."""

from cni_invoker import Attachment
from spec import find_str
from state import EndpointRecord

__all__ = ["cni_attachment", "cni_network_name"]


def cni_attachment(record: EndpointRecord) -> Attachment:
    """Return the CNI attachment of an endpoint.

    The container ID is the attachment's own, not that of Docker's container: iptables chains, port mappings and ifb
    devices are keyed on it without the link's name. Two attachments of one container would remove each other's.
    """
    attachment = record.attachment
    return Attachment(
        container_id=attachment.id,
        ifname=attachment.ifname,
        netns=attachment.netns,
        args=attachment.args,
        capability_args=attachment.capability_args,
    )


def cni_network_name(record: EndpointRecord) -> str:
    """Return the name of the CNI network that an endpoint is attached to, empty if its list has none."""
    return find_str(record.attachment.configuration, "name") or ""
