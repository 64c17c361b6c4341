# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes secrets from documents and texts, for bug reports; pure.

A value is secret if the name before it says so (password, token, key, …), if it is the user information in a URL, or a
private key in PEM form. What a name does not reveal cannot be found. JSON and TOML are parsed.
"""

import tomllib
from collections.abc import Mapping
from typing import Final

from cni_bridge_spec import JsonError, JsonValue, parse_json, render_json
from cnm_bridge.operator.cli.output.values import count
from cnm_bridge.operator.cli.redaction.lines import REDACTED, is_secret_name, redact_lines

_NAMES: Final = ("name", "key")
"""Of a pair with `value`: how Kubernetes writes variables, and CNI arguments are stored."""


def redact(value: JsonValue) -> JsonValue:
    """Return a document without secrets."""
    if isinstance(value, dict):
        return {
            redact_text(key): REDACTED if item and _is_secret(key, value) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        before = [None, *value]
        return [REDACTED if _is_flag(flag) else redact(item) for flag, item in zip(before, value, strict=False)]
    return redact_text(value) if isinstance(value, str) else value


def redact_file(name: str, content: bytes) -> bytes:
    """Return a file without secrets; JSON and TOML as JSON, which has no comments."""
    text = content.decode("utf-8", "replace")
    try:
        document = tomllib.loads(text) if name.endswith(".toml") else parse_json(content)
        return render_json(redact(_as_json(document)), indent=2) + b"\n"
    except (JsonError, tomllib.TOMLDecodeError, RecursionError):
        return redact_text(text).encode()


def redact_text(text: str) -> str:
    """Return a text without secrets: logs, configuration files, output of commands."""
    return "\n".join(redact_lines(text.split("\n"), _redact_json))


def describe_redacted(files: Mapping[str, bytes]) -> str:
    """Return how many values were redacted in which files, and that others may be left; for standard error."""
    counts = {name: content.count(REDACTED.encode()) for name, content in files.items()}
    found = ", ".join(f"{name} ({number})" for name, number in counts.items() if number)
    redacted = f"{count(sum(counts.values()), 'value')} redacted{f': {found}' if found else ''}"
    return f"{redacted}. Secrets whose names do not say so are not recognised: look at the file before you send it"


def _is_secret(key: str, item: Mapping[str, JsonValue]) -> bool:
    """Return whether an object's value is secret: of a pair, if its name says so."""
    if key == "value":
        return any(is_secret_name(str(item.get(name, ""))) for name in _NAMES)
    return is_secret_name(key) and set(item) != {"key", "value"}


def _is_flag(item: JsonValue) -> bool:
    """Return whether the next item of a list, such as a command line, is the value of a secret flag."""
    return isinstance(item, str) and item.startswith("-") and "=" not in item and is_secret_name(item)


def _as_json(value: object) -> JsonValue:
    """Return a TOML value as JSON: dates and times as texts."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _redact_json(text: str) -> str | None:
    """Return a JSON object without secrets, None if the text is none."""
    try:
        document = parse_json(text.encode())
    except (JsonError, UnicodeEncodeError):
        return None
    return render_json(redact(document)).decode() if isinstance(document, dict) else None
