# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What one attachment of a list leaves on the host, in general form; pure.

It is not listed here but learnt once, without kills, from a container on each list (`machine.py`). From then on each
endpoint must have exactly that, with its own ID and addresses.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

_ID: Final = "ENDPOINT"
_CHAIN: Final = "CNI-OF-ENDPOINT"
_PORTS_CHAIN: Final = "CNI-DN-OF-ENDPOINT"
_PORT: Final = " PORT "
_ADDRESSES: Final = {4: "ADDRESS-4", 6: "ADDRESS-6"}
_UNKNOWN_CHAIN: Final = re.compile(r"CNI-(DN-)?[0-9a-f]{20,24}\b")
_PERMANENT_LINK: Final = re.compile(r"\S+ \(bridge\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """One endpoint on the host.

    Attributes:
        endpoint: Its ID, which is the container ID that plugins receive.
        list: The network configuration list.
        addresses: At most one of each family.
        port: The host port that is published on this endpoint, None without one.
    """

    endpoint: str
    list: str
    addresses: tuple[IPv4Address | IPv6Address, ...]
    port: int | None = None

    @property
    def chain(self) -> str:
        """The chain of its masquerading (plugins `pkg/utils/utils.go`, FormatChainName)."""
        return f"CNI-{self._hash[:24]}"

    @property
    def ports_chain(self) -> str:
        """The chain of its published ports (likewise, FormatChainNameWithPrefix: 28 characters at most)."""
        return f"CNI-DN-{self._hash[:21]}"

    @property
    def ifb(self) -> str:
        """The ifb link of its bandwidth limit, if it has one (plugins `meta/bandwidth`, getIfbDeviceName)."""
        return f"bwp{self._hash[:12]}"

    @property
    def _hash(self) -> str:
        return hashlib.sha512(f"{self.list}{self.endpoint}".encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifacts:
    """What one attachment of a list leaves.

    Attributes:
        rules: The iptables rules, with placeholders.
        published: All rules of an attachment that publishes a port; none for a list that cannot publish.
        links: The links in the host namespace, without their names.
        families: The number of addresses.
        files: The files below the plugins' run-time directory, with placeholders.
        link: Everything about its link in a container without other links, inside and on the host (`Link.general`).
        moved: The same for a link that Docker has moved into the sandbox; None if it moves all links.
    """

    rules: tuple[str, ...]
    published: tuple[str, ...] = ()
    links: tuple[str, ...]
    families: int
    files: tuple[str, ...] = ()
    link: frozenset[str] = frozenset()
    moved: frozenset[str] | None = None

    def files_of(self, attachment: Attachment) -> frozenset[str]:
        """Return the files that an attachment must have."""
        return frozenset(path.replace(_ID, attachment.endpoint) for path in self.files)

    def rules_of(self, attachment: Attachment) -> Counter[str]:
        """Return the rules that an attachment must have."""
        words = {_CHAIN: attachment.chain, _PORTS_CHAIN: attachment.ports_chain, _ID: attachment.endpoint}
        words |= {_ADDRESSES[address.version]: str(address) for address in attachment.addresses}
        if attachment.port is None:
            return Counter(_replace(rule, words) for rule in self.rules)
        words[_PORT] = f" {attachment.port} "
        return Counter(_replace(rule, words) for rule in self.published)


def generalise(
    attachment: Attachment, rules: Iterable[str], links: Sequence[str], files: Iterable[str] = ()
) -> Artifacts:
    """Return the general form of an attachment's artifacts.

    Raises:
        ValueError: A rule names a chain of this attachment that is not known here.
    """
    words = {attachment.chain: _CHAIN, attachment.ports_chain: _PORTS_CHAIN, attachment.endpoint: _ID}
    for address in attachment.addresses:
        word = _ADDRESSES[address.version]
        words |= {f"{address}/": f"{word}/", f"{address}:": f"{word}:", f"[{address}]": f"[{word}]"}
    if attachment.port is not None:
        words[f" {attachment.port} "] = _PORT
    general = tuple(sorted(_replace(rule, words) for rule in rules))
    for rule in general:
        if _UNKNOWN_CHAIN.search(rule):
            raise ValueError(f"a rule of list {attachment.list} with a chain of unknown origin: {rule}")
    return Artifacts(
        rules=general,
        links=tuple(sorted(links)),
        families=len(attachment.addresses),
        files=tuple(sorted(path.replace(attachment.endpoint, _ID) for path in files)),
    )


def kind_of_link(line: str) -> str | None:
    """Return `veth, master cni0` for `vethc0ffee (veth, master cni0)`; None for a bridge, which stays."""
    return None if _PERMANENT_LINK.fullmatch(line) else line.partition(" (")[2].removesuffix(")")


def parse_addresses(texts: Iterable[str]) -> tuple[IPv4Address | IPv6Address, ...]:
    """Parse addresses, and return those of IPv4 first."""
    return tuple(sorted((ip_address(text) for text in texts), key=lambda address: address.version))


def _replace(text: str, words: dict[str, str]) -> str:
    for old, new in words.items():
        text = text.replace(old, new)
    return text
