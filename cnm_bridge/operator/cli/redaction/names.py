# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Decides whether a name says that its value is secret; pure."""

import re
from typing import Final

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ENDINGS: Final = ("password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "psk")
_SECRETS: Final = frozenset({"pass", "pwd", "credential", "authorization", "auth"})
_OF_KEYS: Final = frozenset({"api", "private", "access", "encryption", "shared", "preshared"})
"""What may stand before `key` anywhere in a name, such as `access_key_id`; elsewhere only a last `key` is secret."""
_OPEN_KEYS: Final = (["public"], ["sandbox"])
_FLAG: Final = "pass-vlan-input-dev"
"""The kernel's `bridge-nf-pass-vlan-input-dev` is not a password; any other name with `pass` as a word may be one."""


def is_secret_name(name: str) -> bool:
    """Return whether a name such as `dbPassword`, `client-key-data` or `--token` says that its value is secret."""
    words = [word.lower() for word in _WORD.findall(name.removesuffix(_FLAG))]
    singular = [word if word.endswith("ss") else word.removesuffix("s") for word in words]
    if any(word in _SECRETS or word.endswith(_ENDINGS) for word in singular):
        return True
    pairs = list(zip(["", *singular], singular, strict=False))
    if any(word == "key" and before in _OF_KEYS for before, word in pairs):
        return True
    kept = len(words) - (words[-1:] == ["data"])
    return words[kept - 1 : kept] == ["key"] and words[kept - 2 : kept - 1] not in _OPEN_KEYS
