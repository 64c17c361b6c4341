# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The typed endpoint: names and paths by its attachment's ID, and documents read from its record; pure."""

import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cni_bridge_state import AttachmentId, EndpointId, EndpointRecord
from cni_invoker import Attachment, NetworkConfigurationList, Result
from cnm_bridge.core.link_state import Snapshot
from cnm_bridge.core.lists.changes import RESERVATION, with_reservation, without_addresses

STAGING_IFNAME: Final = "eth0"
"""The link's name while the plugins run; third-party plugins and operators expect it."""

_ALTERNATIVE_PREFIX: Final = "cni-bridge-"
_HOST_PREFIX: Final = "cnib"
_ID: Final = re.compile(r"[0-9a-f]{12,64}")
_HOST_DIGITS: Final = 11
_ENDPOINT_ID: Final = re.compile(r"[0-9a-f]{64}")
_STAGING: Final = "netns"
_PINS: Final = "sandboxes"


def host_link_name(attachment_id: AttachmentId) -> str:
    """Return the link's name in the host namespace, e.g. `cnib0123456789a`.

    The kernel allows 15 characters, which leaves 11 hexadecimal digits of a random ID. If two endpoints ever have the
    same digits, the kernel refuses the second name, and CreateEndpoint fails and cleans up. The links are still
    distinguished by their alternative names.
    """
    return f"{_HOST_PREFIX}{attachment_id[:_HOST_DIGITS]}"


def alternative_name(attachment_id: AttachmentId) -> str:
    """Return the link's alternative name, `cni-bridge-<attachment ID>`, which it keeps in every namespace."""
    return f"{_ALTERNATIVE_PREFIX}{attachment_id}"


def attachment_of(alternative: str) -> AttachmentId | None:
    """Return the ID of the attachment whose link has this alternative name, None if it is not one of ours."""
    name = alternative.removeprefix(_ALTERNATIVE_PREFIX)
    return AttachmentId(name) if name != alternative and is_attachment_id(name) else None


def is_attachment_id(name: str) -> bool:
    """Return whether a name can be the ID of an attachment; an operator may use a name like `cni-bridge-uplink`."""
    return _ID.fullmatch(name) is not None


def staging_directory(run_dir: Path) -> Path:
    """Return the directory of the staging namespaces."""
    return run_dir / _STAGING


def pin_directory(run_dir: Path) -> Path:
    """Return the directory of the pins: bind mounts of sandboxes in which plugins have run."""
    return run_dir / _PINS


def pin_path(run_dir: Path, attachment_id: AttachmentId) -> Path:
    """Return the path of the pin of an attachment's sandbox."""
    return pin_directory(run_dir) / attachment_id


def staging_path(run_dir: Path, attachment_id: AttachmentId) -> Path:
    """Return the path of an attachment's staging namespace."""
    return staging_directory(run_dir) / attachment_id


def attachments_of_others(namespaces: Iterable[Path], run_dir: Path) -> frozenset[AttachmentId]:
    """Return the attachments of other instances of cni-bridge on this host, by their staging namespaces and pins.

    While an attachment has anything on the host, one of the two is among the mounted network namespaces. Docker's own
    sandboxes, which are in a directory `netns` too, have shorter names.
    """
    return frozenset(
        AttachmentId(path.name)
        for path in namespaces
        if path.parent.name in {_STAGING, _PINS}
        and _ENDPOINT_ID.fullmatch(path.name)
        and not path.is_relative_to(run_dir)
    )


_last_parsed: Final[deque[tuple[JsonObject, Snapshot]]] = deque(maxlen=32)
"""Snapshots with their documents, which never change: Docker's calls for one container need the same one ten times."""


@dataclass(frozen=True, eq=False)  # without slots, because of the cached properties
class Endpoint:
    """An endpoint's record with typed forms of its documents, each made on first use.

    Keep the object no longer than one call: the typed forms take several times the memory of the record. They cannot
    become stale, because the record is frozen.
    """

    record: EndpointRecord

    @property
    def id(self) -> EndpointId:
        """Docker's endpoint ID."""
        return self.record.id

    @property
    def attachment_id(self) -> AttachmentId:
        """The attachment's ID, which CNI receives as the container ID."""
        return self.record.attachment.id

    @property
    def host_link(self) -> str:
        """The name of its link in the host namespace."""
        return host_link_name(self.attachment_id)

    @property
    def altname(self) -> str:
        """The alternative name of its link, in every namespace."""
        return alternative_name(self.attachment_id)

    @property
    def netns(self) -> Path:
        """The path of the namespace in which its plugins run: the staging namespace, or the pin of its sandbox."""
        return Path(self.record.attachment.netns)

    @property
    def sandbox(self) -> Path | None:
        """The path of its sandbox, None if it has never been joined."""
        return Path(self.record.sandbox_key) if self.record.sandbox_key else None

    @property
    def has_device(self) -> bool:
        """Whether its link is a device of the host, which DEL returns to the host."""
        if any(plugin.type == "host-device" for plugin in self.network.plugins):
            return True
        return self.snapshot is not None and self.snapshot.link.kind is None

    @property
    def device(self) -> str | None:
        """The name on the host of the device of `host-device`, None if its list does not have the name."""
        found = (one.document.get("device") for one in self.network.plugins if one.type == "host-device")
        return next((name for name in found if isinstance(name, str) and name), None)

    @cached_property
    def attachment(self) -> Attachment:
        """Its CNI attachment."""
        return self.attachment_in(self.netns)

    def attachment_in(self, netns: Path) -> Attachment:
        """Return its CNI attachment with another namespace.

        The container ID is the attachment's own ID, not that of Docker's container: plugins name iptables chains, port
        mappings and ifb devices after it without the ifname. Two attachments of one container would remove each
        other's.
        """
        stored = self.record.attachment
        return Attachment(
            container_id=stored.id,
            ifname=stored.ifname,
            netns=str(netns),
            args=stored.args if stored.reservation is None else without_addresses(stored.args),
            capability_args=stored.capability_args,
        )

    def attachment_of(self, index: int, *, netns: Path) -> Attachment:
        """Return the CNI attachment that a plugin of `network` received at ADD, with another namespace.

        DEL must receive the same (CNI SPEC §4). The IPAM plugin that ran at CreateEndpoint received the requests for
        addresses, which the others did not, no identity, which they did, and the path of the staging namespace.
        """
        stored = self.record.attachment
        attachment = self.attachment_in(netns)
        if index != RESERVATION or not stored.has_reservation:
            return attachment
        args = stored.args if stored.reservation_input is None else stored.reservation_input.args
        reserved_in = staging_path(self.netns.parents[1], stored.id)
        return replace(attachment, args=args, netns=str(reserved_in))

    @cached_property
    def network(self) -> NetworkConfigurationList:
        """The network configuration list that its plugins receive; with a reservation, see `with_reservation`."""
        stored = self.record.attachment
        network = NetworkConfigurationList.from_document(stored.configuration).with_version(stored.cni_version)
        if not stored.has_reservation:
            return network
        received = None if stored.reservation_input is None else stored.reservation_input.plugin
        return with_reservation(network, self.reserved, received)

    @cached_property
    def reserved(self) -> Result | None:
        """The result of the IPAM plugin at CreateEndpoint, None if it did not run there."""
        document = self.record.attachment.reservation
        return None if document is None else Result.from_document(document)

    @cached_property
    def reservation(self) -> NetworkConfigurationList | None:
        """The part of the list that runs at CreateEndpoint in mode *hybrid*: the IPAM plugin; None if there is none."""
        if not self.record.attachment.has_reservation:
            return None
        return self.network.with_plugins(self.network.plugins[:1])

    @cached_property
    def chain(self) -> NetworkConfigurationList:
        """The list without the reservation."""
        if not self.record.attachment.has_reservation:
            return self.network
        return self.network.with_plugins(self.network.plugins[1:])

    @cached_property
    def result(self) -> Result | None:
        """The result of the last plugin whose ADD completed, None if none has."""
        document = self.record.result
        return None if document is None else Result.from_document(document)

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """What the plugins left in the namespace where they ran, or the link that they will make; None before that."""
        document = self.record.snapshot
        if document is None:
            return None
        for known, snapshot in tuple(_last_parsed):
            if known is document:
                return snapshot
        snapshot = Snapshot.from_json(document)
        _last_parsed.append((document, snapshot))
        return snapshot
