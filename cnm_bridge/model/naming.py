# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names that follow from an attachment's ID; pure."""

import re
from pathlib import Path
from typing import Final

from state import AttachmentId

__all__ = [
    "STAGING_IFNAME",
    "alternative_name",
    "attachment_of",
    "host_link_name",
    "is_attachment_id",
    "staging_directory",
    "staging_path",
]

STAGING_IFNAME: Final = "eth0"
"""The link's name while the plugins see it; keys of third-party plugins and operators' eyes expect it."""

_ALTERNATIVE_PREFIX: Final = "cni-bridge-"
_HOST_PREFIX: Final = "cnib"
_ID: Final = re.compile(r"[0-9a-f]{12,64}")
_HOST_DIGITS: Final = 11


def host_link_name(attachment_id: AttachmentId) -> str:
    """Return the link's name while it waits in the host namespace, e.g. `cnib0123456789a`.

    Fifteen characters are the kernel's limit. Eleven hexadecimal digits of an ID that Docker draws at random: should
    two endpoints ever agree in them, the kernel refuses the second name, and CreateEndpoint fails and cleans up: the
    alternative name tells the links apart.
    """
    return f"{_HOST_PREFIX}{attachment_id[:_HOST_DIGITS]}"


def alternative_name(attachment_id: AttachmentId) -> str:
    """Return the alternative name that the link keeps in whichever namespace it is: `cni-bridge-<attachment ID>`."""
    return f"{_ALTERNATIVE_PREFIX}{attachment_id}"


def attachment_of(alternative: str) -> AttachmentId | None:
    """Return the ID of the attachment whose link has this alternative name, None if it is none of ours."""
    name = alternative.removeprefix(_ALTERNATIVE_PREFIX)
    return AttachmentId(name) if name != alternative and is_attachment_id(name) else None


def is_attachment_id(name: str) -> bool:
    """Tell whether a name can be the ID of an attachment; `cni-bridge-uplink` is an operator's."""
    return _ID.fullmatch(name) is not None


def staging_directory(run_dir: Path) -> Path:
    """Return the directory of the staging namespaces."""
    return run_dir / "netns"


def staging_path(run_dir: Path, attachment_id: AttachmentId) -> Path:
    """Return the path of an attachment's staging namespace."""
    return staging_directory(run_dir) / attachment_id
