# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes secrets from documents and texts, for bug reports; pure.

A value is secret if the name before it says so (password, token, key, …), if it is the user information in a URL, or a
private key in PEM form. What a name does not reveal cannot be found. Configuration files are parsed; one that cannot
be is left out. In a text, such as a log, the rest of a line with a secret is removed, and the lines below it that are
indented deeper. The time is proportional to the length, whatever is in the text.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cni_bridge_spec import JsonError, JsonValue, parse_json, render_json
from cnm_bridge.operator.cli.output import count

REDACTED: Final = "[redacted]"
_LINE_CHARACTERS: Final = 8192
"""A longer line, unless it has a JSON object, is truncated."""

_PAIR: Final = ("name", "key")
"""Of a pair with `value`: how Kubernetes writes variables, and CNI arguments are stored."""
_VALUE: Final = "value"
"""The other half of such a pair; in a text with the name of a secret, each is taken for one."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_ASSIGNS: Final = re.compile(r"""(?:\[[^]]{0,64}\])?[\\"']*\s*[:=>]""")
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")
_KEY_END: Final = "-----END"

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ENDINGS: Final = ("password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "psk")
_SECRETS: Final = frozenset({"pass", "pwd", "credential", "authorization", "auth"})
_OF_KEYS: Final = frozenset({"api", "private", "access", "encryption", "shared", "preshared"})
"""What may stand before `key` anywhere in a name, such as `access_key_id`; elsewhere only a last `key` is secret."""
_OPEN_KEYS: Final = (["public"], ["sandbox"])
_FLAG: Final = "pass-vlan-input-dev"
"""The kernel's `bridge-nf-pass-vlan-input-dev` is not a password; any other name with `pass` as a word may be one."""


def redact(value: JsonValue) -> JsonValue:
    """Return a document without secrets; of a text in it, everything from a secret on is removed."""
    if isinstance(value, dict):
        return {
            _redact_string(key): REDACTED if item and _is_secret(key, value) else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        before = [None, *value]
        return [REDACTED if _is_flag(flag) else redact(item) for flag, item in zip(before, value, strict=False)]
    return _redact_string(value) if isinstance(value, str) else value


def redact_file(name: str, content: bytes) -> bytes:
    """Return a configuration file, JSON or TOML, as JSON without secrets; of any other, only how large it is."""
    try:
        document = tomllib.loads(content.decode()) if name.endswith(".toml") else parse_json(content)
        return render_json(redact(_as_json(document)), indent=2) + b"\n"
    except (JsonError, tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError):
        return f"{count(len(content), 'byte')}, left out: neither JSON nor TOML\n".encode()


def redact_output(content: bytes) -> bytes:
    """Return the output of a command without secrets."""
    try:
        return render_json(redact(parse_json(content)), indent=2) + b"\n"
    except (JsonError, RecursionError):
        return redact_text(content.decode("utf-8", "replace")).encode()


def redact_text(text: str) -> str:
    """Return a text without secrets, such as a log."""
    return "\n".join(_redact_lines(text.split("\n")))


def describe_redacted(files: Mapping[str, bytes]) -> str:
    """Return how many values were redacted in which files, and that others may be left; for standard error."""
    counts = {name: content.count(REDACTED.encode()) for name, content in files.items()}
    found = ", ".join(f"{name} ({number})" for name, number in counts.items() if number)
    redacted = f"{count(sum(counts.values()), 'value')} redacted{f': {found}' if found else ''}"
    return f"{redacted}. Secrets whose names do not say so are not recognised: look at the file before you send it"


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


def _is_secret(key: str, item: Mapping[str, JsonValue]) -> bool:
    """Return whether an object's value is secret: of a pair, if its name says so."""
    if key == _VALUE:
        return any(is_secret_name(str(item.get(name, ""))) for name in _PAIR)
    return is_secret_name(key) and set(item) != {"key", _VALUE}


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


def _redact_string(text: str) -> str:
    """Return a text of a document: one that is an object itself without its secrets, others up to the first secret."""
    document = _redact_object(text)
    if document is not None:
        return document
    start = _find_secret(text, has_names=_has_secret_name(text))
    return _redact_urls(text) if start is None else f"{_redact_urls(text[:start])} {REDACTED}"


def _redact_lines(lines: Sequence[str]) -> Iterator[str]:
    depth: int | None = None
    """How far the last line with a secret is indented; None if what follows is no part of its value."""
    in_key = False
    has_names = any(map(_has_secret_name, lines))
    for line in lines:
        if in_key:
            in_key = _KEY_END not in line
            continue
        if depth is not None and (not line.strip() or _indent_of(line) > depth):
            continue
        start = line.find("{")
        before = _find_secret(line[: start if start >= 0 else _LINE_CHARACTERS], has_names=has_names)
        document = _redact_object(line[start:]) if start >= 0 and before is None else None
        if document is not None:
            depth = None
            yield _redact_urls(line[:start]) + document
            continue
        shown = _truncated(line)
        found = _find_secret(shown, has_names=has_names)
        depth = None if found is None else _indent_of(line)
        in_key = _PRIVATE_KEY.search(line) is not None and _KEY_END not in line
        yield _redact_urls(shown) if found is None else f"{_redact_urls(shown[:found])} {REDACTED}"


def _truncated(line: str) -> str:
    more = len(line) - _LINE_CHARACTERS
    return line if more <= 0 else f"{line[:_LINE_CHARACTERS]} [{more} characters removed]"


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def _redact_object(text: str) -> str | None:
    """Return a JSON object without secrets, None if the text is none."""
    if not text.lstrip().startswith("{"):
        return None
    try:
        document = parse_json(text.encode())
    except (JsonError, UnicodeEncodeError, RecursionError):
        return None
    return render_json(redact(document)).decode() if isinstance(document, dict) else None


def _has_secret_name(text: str) -> bool:
    names = _NAME.finditer(text, 0, _LINE_CHARACTERS)
    return any(is_secret_name(name[0]) for name in names if not (name[0] in _PAIR and _ASSIGNS.match(text, name.end())))


def _find_secret(text: str, *, has_names: bool) -> int | None:
    """Return where the value of the first secret in a text begins, None without one.

    Args:
        text: The text.
        has_names: Whether it, or what is around it, has the name of a secret, which may be that of a pair.
    """
    key = _PRIVATE_KEY.search(text)
    for name in _NAME.finditer(text, 0, key.start() if key is not None else len(text)):
        after = _ASSIGNS.match(text, name.end())
        is_bearer = name[0].lower() == "bearer"
        # Also `--password x`, and `Bearer x`.
        is_given = after is not None or name[0].startswith("-") or is_bearer
        if is_given and (is_bearer or (has_names and name[0] == _VALUE) or is_secret_name(name[0])):
            return name.end() if after is None else after.end()
    return None if key is None else key.start()


def _redact_urls(line: str) -> str:
    """Return a line without user information in URLs: in a word with `://`, what is between that and the last `@`.

    If the next `@` is not in the URL's authority, this is a path with `@`, or a password with `/` after a colon.
    """
    if "://" not in line:
        return line
    words = re.split(r"(\s+)", line)
    return "".join(map(_redact_url, words))


def _redact_url(word: str) -> str:
    before, scheme, url = word.partition("://")
    if "@" not in url:
        return word
    if "@" not in re.split("[/?#]", url, maxsplit=1)[0]:
        user, colon, url = url.partition(":")
        scheme += user + colon
        if "@" not in url or not colon:
            return word
    return f"{before}{scheme}{REDACTED}{url[url.rindex('@') :]}"
