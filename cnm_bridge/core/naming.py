# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names and paths derived from an attachment's ID; pure."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cni_bridge_state import AttachmentId

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

    While an attachment has anything on the host, one of the two is mounted. Docker's own sandboxes, which are in a
    directory `netns` too, have shorter names.

    Args:
        namespaces: The paths of all mounted network namespaces.
        run_dir: The run directory of this instance.
    """
    return frozenset(
        AttachmentId(path.name)
        for path in namespaces
        if path.parent.name in {_STAGING, _PINS}
        and _ENDPOINT_ID.fullmatch(path.name)
        and not path.is_relative_to(run_dir)
    )
