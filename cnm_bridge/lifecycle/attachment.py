# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""From an endpoint's record to what CNI calls an attachment; pure."""

from cni_invoker import Attachment
from state import EndpointRecord

__all__ = ["cni_attachment"]


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
