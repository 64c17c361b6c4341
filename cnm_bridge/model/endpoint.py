# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""An endpoint, read from its record: names, paths, and documents that are parsed once; pure."""

from functools import cached_property
from pathlib import Path

from cni_invoker import Attachment, NetworkConfigurationList, Result
from cnm_bridge.kernel import Snapshot
from cnm_bridge.model.naming import alternative_name, host_link_name
from state import AttachmentId, EndpointId, EndpointRecord

__all__ = ["Endpoint"]


class Endpoint:
    """An endpoint's record and what is read from it.

    Each document is parsed when it is first asked for. Keep the object no longer than the call that it serves: parsed
    documents are several times as large as their text.

    Args:
        record: The record; it is frozen, so that what was parsed stays true.
    """

    def __init__(self, record: EndpointRecord) -> None:
        self.record = record

    @property
    def id(self) -> EndpointId:
        """Docker's endpoint ID."""
        return self.record.id

    @property
    def attachment_id(self) -> AttachmentId:
        """The ID that CNI knows, as container ID."""
        return self.record.attachment_id

    @property
    def host_link(self) -> str:
        """The name of its link while that waits in the host namespace."""
        return host_link_name(self.attachment_id)

    @property
    def altname(self) -> str:
        """The alternative name of its link, in whichever namespace that is."""
        return alternative_name(self.attachment_id)

    @property
    def staging(self) -> Path:
        """The path of its staging namespace."""
        return Path(self.record.attachment.netns)

    @property
    def sandbox(self) -> Path | None:
        """The path of its sandbox, None unless it was joined once."""
        return Path(self.record.sandbox_key) if self.record.sandbox_key else None

    @property
    def attachment(self) -> Attachment:
        """What CNI calls its attachment.

        The container ID is the attachment's own, not that of Docker's container: iptables chains, port mappings and ifb
        devices are keyed on it without the link's name. Two attachments of one container would remove each other's.
        """
        stored = self.record.attachment
        return Attachment(
            container_id=stored.id,
            ifname=stored.ifname,
            netns=stored.netns,
            args=stored.args,
            capability_args=stored.capability_args,
        )

    @cached_property
    def network(self) -> NetworkConfigurationList:
        """The network configuration list, in the version in which its plugins were run."""
        stored = self.record.attachment
        return NetworkConfigurationList.from_document(stored.configuration).with_version(stored.cni_version)

    @cached_property
    def result(self) -> Result | None:
        """The result of the last plugin whose ADD completed, None if none has."""
        document = self.record.result
        return None if document is None else Result.from_document(document)

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """What the plugins left in the staging namespace, None before ADD has completed."""
        document = self.record.snapshot
        return None if document is None else Snapshot.from_json(document)
