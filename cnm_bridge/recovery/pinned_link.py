# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the link of an endpoint without a record in its pinned sandbox."""

from pathlib import Path

from cni_bridge_state import AttachmentId
from cnm_bridge.kernel import Kernel
from cnm_bridge.model.naming import STAGING_IFNAME, alternative_name, pin_path

__all__ = ["find_pinned_link"]


async def find_pinned_link(kernel: Kernel, run_dir: Path, attachment_id: AttachmentId, mac: str | None) -> str | None:
    """Return the name of the link, which plugins need for DEL; None if no sandbox is pinned for the attachment.

    If the link is gone, it is the name that most links have.

    Args:
        kernel: Looks into the sandbox.
        run_dir: The parent directory of the pins.
        attachment_id: The attachment.
        mac: The link's MAC, None if it is not known.

    Raises:
        KernelError: The sandbox cannot be read.
    """
    pin = pin_path(run_dir, attachment_id)
    if not kernel.is_namespace(pin):
        return None
    found = await kernel.find_pinned_link(pin, STAGING_IFNAME, alternative_name(attachment_id), mac)
    return found or STAGING_IFNAME
