# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What plugins make for a container and call by a hash: iptables chains, and the links that `bandwidth` limits by.

Their names are hashes of network and container ID (plugins `meta/bandwidth`, getIfbDeviceName; `pkg/utils`,
MustFormatHashWithPrefix and MustFormatChainNameWithPrefix); the owner can be found only from both. Pure.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha512
from typing import Final

__all__ = ["IFB_KIND", "chain_names", "hashed_names", "ifb_name", "is_chain_name", "is_ifb_name", "noted_names"]

IFB_KIND: Final = "ifb"
"""What the kernel calls the links of `bandwidth`."""

_IFB_LENGTH: Final = 15
_CHAIN_LENGTH: Final = 28
_CHAINS: Final = ("CNI-", "CNI-DN-", "CNI-SN-")
"""How the chains of masquerading begin, and those of `portmap`: to the container, and (before 0.7.0) from it."""
_IFB: Final = re.compile(r"bwp[0-9a-f]{12}")
_CHAIN: Final = re.compile(r"CNI-(?:[0-9a-f]{24}|(?:DN|SN)-[0-9a-f]{21})")


def ifb_name(network: str, container_id: str) -> str:
    """Return the name of the link that `bandwidth` makes for a container on a CNI network."""
    return _ifb(_hash(network, container_id))


def chain_names(network: str, container_id: str) -> frozenset[str]:
    """Return the names of the iptables chains that may be made for a container on a CNI network."""
    return frozenset(_chains(_hash(network, container_id)))


def hashed_names(network: str, container_id: str) -> frozenset[str]:
    """Return all these names."""
    digest = _hash(network, container_id)
    return frozenset((_ifb(digest), *_chains(digest)))


def is_ifb_name(name: str) -> bool:
    """Return whether a link's name is one that `bandwidth` gives."""
    return _IFB.fullmatch(name) is not None


def is_chain_name(name: str) -> bool:
    """Return whether the name of a chain is one that is given to a container's."""
    return _CHAIN.fullmatch(name) is not None


def noted_names(files: Iterable[str]) -> frozenset[str]:
    """Return the names of what may have been made for the attachments that libcni has noted.

    Args:
        files: Names in libcni's cache, `<network>-<container ID>-<link>`; each part may have a `-` as well.
    """
    found: set[str] = set()
    for file in files:
        hyphens = [place for place, letter in enumerate(file) if letter == "-"]
        for number, first in enumerate(hyphens):
            for second in hyphens[number + 1 :]:
                found |= hashed_names(file[:first], file[first + 1 : second])
    return frozenset(found)


def _ifb(digest: str) -> str:
    return f"bwp{digest}"[:_IFB_LENGTH]


def _chains(digest: str) -> Iterator[str]:
    return (f"{prefix}{digest}"[:_CHAIN_LENGTH] for prefix in _CHAINS)


def _hash(network: str, container_id: str) -> str:
    return sha512((network + container_id).encode()).hexdigest()
