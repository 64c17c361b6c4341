# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""From an endpoint's record to what CNI calls an attachment; pure."""

from cni_invoker import Attachment
from spec import find_str
from state import EndpointRecord

__all__ = ["cni_attachment", "cni_network_name"]


def cni_attachment(record: EndpointRecord) -> Attachment:
    """Return the CNI attachment of an endpoint.

    The container ID is Docker's *endpoint* ID: iptables chains, port mappings and ifb devices are keyed on it without
    the link's name, so that two attachments of one container would take each other's away.
    """
    attachment = record.attachment
    return Attachment(
        container_id=record.id,
        ifname=attachment.ifname,
        netns=attachment.netns,
        args=attachment.args,
        capability_args=attachment.capability_args,
    )


def cni_network_name(record: EndpointRecord) -> str:
    """Return the name of the CNI network that an endpoint is attached to, empty if its list has none."""
    return find_str(record.attachment.configuration, "name") or ""
