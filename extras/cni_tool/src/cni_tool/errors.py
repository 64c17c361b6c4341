# SPDX-License-Identifier: Apache-2.0
"""The errors of the attachment cache; all others are the library's (`cni_invoker.errors`)."""

from pathlib import Path

from cni_invoker.errors import CniError, ErrorCode


class AttachmentExists(CniError):
    """ADD of an attachment that exists, or whose DEL is pending; nothing has been executed."""

    def __init__(self, network: str, container_id: str, ifname: str) -> None:
        super().__init__(
            f"{ifname} of {container_id} is already attached to {network}, or its DEL is pending; delete it first, "
            "with force=True (del --force) if its DEL cannot succeed"
        )


class NotAttached(CniError):
    """CHECK of an attachment that does not exist or is incomplete; nothing has been executed."""

    code = ErrorCode.UNKNOWN_CONTAINER

    def __init__(self, network: str, container_id: str, ifname: str, *, delete_pending: bool) -> None:
        incomplete = "its ADD or its DEL has not completed; delete it, and add it again"
        why = incomplete if delete_pending else "add it first"
        super().__init__(f"{ifname} of {container_id} is not attached to {network}: {why}")


class CacheError(CniError):
    """The attachment cache cannot be read or written.

    Attributes:
        place: The affected file or directory.
        reason: What is wrong.
    """

    code = ErrorCode.IO_FAILURE
    phrase: str = ""

    def __init__(self, place: Path, reason: str) -> None:
        super().__init__(f"{self.phrase}attachment cache: {place}: {reason}")
        self.place = place
        self.reason = reason


class CacheDamaged(CacheError):
    """A cached attachment is unreadable."""

    code = ErrorCode.DECODING_FAILURE
    phrase = "failed to get cached result: "
