# SPDX-License-Identifier: Apache-2.0
"""Errors about stored attachments; see the package."""

from typing import TYPE_CHECKING

from cni_invoker.errors.of_runtime import CniError
from cni_invoker.protocol import ErrorCode

if TYPE_CHECKING:  # plugins, which start anew for each call, do not load it
    from pathlib import Path

__all__ = ["AttachmentExists", "CacheDamaged", "CacheError", "CacheUnknown", "NotAttached"]


class AttachmentExists(CniError):
    """ADD of an attachment that exists, or whose DEL is pending; nothing has been executed.

    Attributes:
        network: Name of the network.
        container_id: The container's ID.
        ifname: Name of the interface.
    """

    def __init__(self, network: str, container_id: str, ifname: str) -> None:
        super().__init__(
            f"{ifname} of {container_id} is already attached to {network}, or its DEL is pending; delete it first, "
            "with force=True if its DEL cannot succeed"
        )
        self.network = network
        self.container_id = container_id
        self.ifname = ifname


class NotAttached(CniError):
    """CHECK of an attachment that does not exist or is incomplete; nothing has been executed.

    Attributes:
        network: Name of the network.
        container_id: The container's ID.
        ifname: Name of the interface.
        delete_pending: Whether an ADD or a DEL has begun, so that a DEL must complete.
    """

    code = ErrorCode.UNKNOWN_CONTAINER

    def __init__(self, network: str, container_id: str, ifname: str, *, delete_pending: bool) -> None:
        incomplete = "its ADD or its DEL has not completed; delete it, and add it again"
        why = incomplete if delete_pending else "add it first"
        super().__init__(f"{ifname} of {container_id} is not attached to {network}: {why}")
        self.network = network
        self.container_id = container_id
        self.ifname = ifname
        self.delete_pending = delete_pending


class CacheError(CniError):
    """The attachment cache cannot be read or written.

    Attributes:
        place: The affected file or object.
        reason: What is wrong.
    """

    code = ErrorCode.IO_FAILURE
    phrase: str = ""
    """libcni's words, so that the message can be searched for."""

    def __init__(self, place: "Path | str", reason: str) -> None:
        super().__init__(f"{self.phrase}attachment cache: {place}: {reason}")
        self.place = place
        self.reason = reason


class CacheDamaged(CacheError):
    """A cached attachment is unreadable."""

    code = ErrorCode.DECODING_FAILURE
    phrase = "failed to get cached result: "


class CacheUnknown(CacheError):
    """A cached attachment has a format that this version does not know; it is left unchanged."""

    code = ErrorCode.DECODING_FAILURE
    phrase = "failed to get cached result: "
