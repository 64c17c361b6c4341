# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The links that `bandwidth` makes in the host namespace to limit what containers send.

Their names are hashes of network and container ID (plugins `meta/bandwidth`, getIfbDeviceName, `pkg/utils`,
MustFormatHashWithPrefix): whose one is can be told only by those who know both. Pure.
"""

import re
from collections.abc import Iterable
from hashlib import sha512
from typing import Final

__all__ = ["IFB_KIND", "ifb_name", "is_ifb_name", "noted_ifb_names"]

IFB_KIND: Final = "ifb"
"""What the kernel calls such links."""

_LENGTH: Final = 15
_NAME: Final = re.compile(r"bwp[0-9a-f]{12}")


def ifb_name(network: str, container_id: str) -> str:
    """Return the name of the link that `bandwidth` makes for a container on a CNI network."""
    return f"bwp{sha512((network + container_id).encode()).hexdigest()}"[:_LENGTH]


def is_ifb_name(name: str) -> bool:
    """Tell whether a link's name is one that `bandwidth` gives."""
    return _NAME.fullmatch(name) is not None


def noted_ifb_names(files: Iterable[str]) -> frozenset[str]:
    """Return the names of the links that the attachments may have that libcni has noted.

    Args:
        files: Names in libcni's cache, `<network>-<container ID>-<link>`; each part may have a `-` as well.
    """
    found: set[str] = set()
    for file in files:
        hyphens = [place for place, letter in enumerate(file) if letter == "-"]
        found.update(
            ifb_name(file[:first], file[first + 1 : second])
            for number, first in enumerate(hyphens)
            for second in hyphens[number + 1 :]
        )
    return frozenset(found)
