# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes secrets from documents and texts, for bug reports; pure.

A value is secret if the name before it says so (password, token, key, …), if it is the password in a URL, or a private
key in PEM form. What a name does not reveal cannot be found.
"""

import re
from collections.abc import Mapping
from typing import Final

from cni_bridge_spec import JsonValue
from cnm_bridge.cli.output.table import count

__all__ = ["REDACTED", "describe_redacted", "redact", "redact_text"]

REDACTED: Final = "[redacted]"

# The kernel's bridge-nf-pass-vlan-input-dev is no password; any other name with `pass` as a part may be one.
_WORD: Final = (
    r"(?!pass-vlan-input-dev)pass(?:word|wd|phrase)?|pwd|secret|token|(?:api|private|auth|access|encryption|shared|preshared)[_.-]?key|psk"
    r"|credentials?|authorization|auth"
)
_SECRET_NAME: Final = re.compile(
    rf"(?i)(?:^|[^a-z])(?:{_WORD})s?(?:$|[^a-z])|(?:password|passwd|secret|token|apikey|privatekey|psk)s?$"
)
_ASSIGNED: Final = re.compile(
    rf"""(?ix)
    ( (?:[\w.-]*[_.-])? (?:{_WORD}|\w+(?:password|passwd|secret|token|apikey)) s? \d* (?:[_.-][\w.-]*)?
      \\*["']? \s* [:=] \s* )
    ( \\*"(?:[^"\\]|\\[^"])*\\*" | '[^']*' | (?:bearer|basic)\s+\S+ | [^\s,;}}\]]+ )
    """
)
_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@", re.IGNORECASE)
_PEM: Final = re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)


def redact(value: JsonValue) -> JsonValue:
    """Return a document without secrets."""
    if isinstance(value, dict):
        return {key: REDACTED if item and _is_secret(key) else redact(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_pair(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def redact_text(text: str) -> str:
    """Return a text without secrets: logs, configuration files, output of commands."""
    text = _PEM.sub(REDACTED, text)
    text = _URL.sub(rf"\g<scheme>:{REDACTED}@", text)
    return _ASSIGNED.sub(rf"\1{REDACTED}", text)


def describe_redacted(files: Mapping[str, bytes]) -> str:
    """Return how many values were redacted in which files, and that others may be left; for standard error."""
    counts = {name: content.count(REDACTED.encode()) for name, content in files.items()}
    found = ", ".join(f"{name} ({number})" for name, number in counts.items() if number)
    redacted = f"{count(sum(counts.values()), 'value')} redacted{f': {found}' if found else ''}"
    return f"{redacted}. Secrets whose names do not say so are not recognised: look at the file before you send it"


def _redact_pair(item: JsonValue) -> JsonValue:
    """Redact an item of a list; `{"key": name, "value": value}` is how CNI arguments are stored."""
    if isinstance(item, dict) and set(item) == {"key", "value"} and _is_secret(str(item["key"])):
        return {**item, "value": REDACTED}
    return redact(item)


def _is_secret(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return _SECRET_NAME.search(spaced) is not None
