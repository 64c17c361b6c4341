# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds the link of an endpoint without a record in its pinned sandbox."""

from dataclasses import dataclass
from pathlib import Path

from cni_bridge_state import AttachmentId
from cnm_bridge.core.model.naming import STAGING_IFNAME, alternative_name, pin_path
from cnm_bridge.core.planning.link.endpoint_replies import given_addresses
from cnm_bridge.system.kernel import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedLink:
    """A link in a pinned sandbox.

    Attributes:
        name: Its name; if it is gone, the name that most links have.
        addresses: Its addresses, with prefixes; none if it is gone. In mode *direct* Docker does not know them.
    """

    name: str
    addresses: tuple[str, ...] = ()


async def find_pinned_link(
    kernel: Kernel, run_dir: Path, attachment_id: AttachmentId, mac: str | None
) -> PinnedLink | None:
    """Return the link, whose name and addresses plugins need for DEL; None if no sandbox is pinned for the attachment.

    Args:
        kernel: Looks into the sandbox.
        run_dir: The parent directory of the pins.
        attachment_id: The attachment.
        mac: The link's MAC, None if it is not known.

    Raises:
        KernelError: The sandbox cannot be read.
    """
    pin, altname = pin_path(run_dir, attachment_id), alternative_name(attachment_id)
    if not kernel.is_namespace(pin):
        return None
    name = await kernel.find_pinned_link(pin, STAGING_IFNAME, altname, mac)
    found = await kernel.look_in_sandbox(pin, altname) if name is not None else None
    addresses = () if found is None else tuple(map(str, given_addresses(found)))
    return PinnedLink(name=name or STAGING_IFNAME, addresses=addresses)
