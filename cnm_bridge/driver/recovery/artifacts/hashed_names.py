# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names of iptables chains, and of the IFB links of `bandwidth`, which contain a hash; pure.

The hash is that of the network's name and the container ID (plugins `meta/bandwidth`, getIfbDeviceName; `pkg/utils`,
MustFormatHashWithPrefix and MustFormatChainNameWithPrefix). So the owner can be found only by comparing the name with
those computed for known attachments.
"""

import re
from collections.abc import Iterable, Iterator
from hashlib import sha512
from typing import Final

__all__ = [
    "IFB_KIND",
    "chain_names",
    "hashed_names",
    "ifb_name",
    "is_chain_name",
    "is_ifb_name",
    "names_for_cache_files",
]

IFB_KIND: Final = "ifb"
"""The kernel's name for the kind of the links that `bandwidth` creates."""

_IFB_LENGTH: Final = 15
_CHAIN_LENGTH: Final = 28
_CHAINS: Final = ("CNI-", "CNI-DN-", "CNI-SN-")
"""Prefixes of the chains for masquerading, and of those of `portmap`: DNAT, and before plugins 0.7.0 SNAT."""
_IFB: Final = re.compile(r"bwp[0-9a-f]{12}")
_CHAIN: Final = re.compile(r"CNI-(?:[0-9a-f]{24}|(?:DN|SN)-[0-9a-f]{21})")


def ifb_name(network: str, container_id: str) -> str:
    """Return the name of the IFB link that `bandwidth` creates for a container on a CNI network."""
    return _ifb(_hash(network, container_id))


def chain_names(network: str, container_id: str) -> frozenset[str]:
    """Return the names of the iptables chains that plugins may create for a container on a CNI network."""
    return frozenset(_chains(_hash(network, container_id)))


def hashed_names(network: str, container_id: str) -> frozenset[str]:
    """Return the names of both the link and the chains."""
    digest = _hash(network, container_id)
    return frozenset((_ifb(digest), *_chains(digest)))


def is_ifb_name(name: str) -> bool:
    """Return whether a link's name has the form of those that `bandwidth` creates."""
    return _IFB.fullmatch(name) is not None


def is_chain_name(name: str) -> bool:
    """Return whether a chain's name has the form of those that belong to one container."""
    return _CHAIN.fullmatch(name) is not None


def names_for_cache_files(files: Iterable[str]) -> frozenset[str]:
    """Return the names of the links and chains that plugins may have created for the attachments in libcni's cache.

    Args:
        files: Names of cache files, `<network>-<container ID>-<ifname>`. Each part may itself contain a `-`, so all
            ways to divide a name are tried.
    """
    found: set[str] = set()
    for file in files:
        hyphens = [index for index, letter in enumerate(file) if letter == "-"]
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
