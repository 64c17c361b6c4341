# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Values that must differ between two containers, replaced by what they are: `10.91.1.3` becomes `NET.1.own`."""

import re
from collections.abc import Mapping
from ipaddress import IPv6Address


def replace_values(view: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, str]:
    """Replace each whole word that is a key of `roles`, longer ones first, in the keys and values of a view."""
    words = sorted((word for word in roles if word), key=len, reverse=True)
    found = re.compile("|".join(rf"(?<![\da-zA-Z]){re.escape(word)}(?![\da-zA-Z])" for word in words))

    def replaced(text: str) -> str:
        return found.sub(lambda match: roles[match[0]], text)

    return {replaced(key): replaced(value) for key, value in view.items()}


def flatten(value: object, path: str) -> dict[str, str]:
    """Return a JSON value as texts by their path: objects by their keys, lists by what they have."""
    if isinstance(value, Mapping) and value:
        found = {}
        for key, inner in value.items():
            found.update(flatten(inner, f"{path}.{key}"))
        return found
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        return flatten({str(number): item for number, item in enumerate(value)}, path)
    if isinstance(value, list) and value:
        return {f"{path} has {item}": "yes" for item in value}
    return {path: "" if value in (None, [], {}) else str(value)}


def link_local(mac: str) -> str:
    """Return the link-local IPv6 address that the kernel makes of a MAC address (RFC 4291, appendix A)."""
    first, *others = bytes.fromhex(mac.replace(":", ""))
    octets = bytes((first ^ 2, *others[:2], 0xFF, 0xFE, *others[2:]))
    return str(IPv6Address(b"\xfe\x80" + bytes(6) + octets))
