# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Removes secrets from documents and texts, for bug reports; pure.

A value is secret if the name before it says so (password, token, key, …), if it is the user information in a URL, or a
private key in PEM form. What a name does not reveal cannot be found. JSON and TOML are parsed. In a text whose format
is not known, such as a log or YAML, everything from a secret name to the end of its value is removed, and in doubt
more: the rest of the line, and the lines that may continue the value. The time is proportional to the length.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from cni_bridge_spec import JsonError, JsonValue, parse_json, render_json
from cnm_bridge.operator.cli.values import count

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


REDACTED: Final = "[redacted]"
_LINE_CHARACTERS: Final = 8192
"""A longer line, unless it has a JSON object, is truncated."""

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")
_ASSIGNS: Final = re.compile(r"""(?:\[[^]]{0,64}\])?[\\"']*\s*[:=>]""")
_PAIR: Final = re.compile(r"""(?<![\w.-])(?:(?:name|key)[\\"']*\s*[:=]\s*[\\"']*([\w.-]+)|value[\\"']*\s*[:=])""")
"""The halves of a name and its value, as Kubernetes writes variables; of the first one, the name."""

_PRIVATE_KEY: Final = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY")
_KEY_END: Final = "-----END"
_QUOTES: Final = ('"""', "'''", '"', "'")
_BRACKETS: Final = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ENDINGS: Final = ("password", "passwd", "passphrase", "secret", "token", "apikey", "privatekey", "psk")
_SECRETS: Final = frozenset({"pass", "pwd", "credential", "authorization", "auth"})
_OF_KEYS: Final = frozenset({"api", "private", "access", "encryption", "shared", "preshared"})
"""What may stand before `key` anywhere in a name, such as `access_key_id`; elsewhere only a last `key` is secret."""

_OPEN_KEYS: Final = (["public"], ["sandbox"])
_FLAG: Final = "pass-vlan-input-dev"
"""The kernel's `bridge-nf-pass-vlan-input-dev` is not a password; any other name with `pass` as a word may be one."""


def redact_lines(lines: Sequence[str], redact_json: Callable[[str], str | None]) -> Iterator[str]:
    """Yield lines without secrets; lines that belong to the value of a secret only are left out.

    Args:
        lines: The lines, without their ends.
        redact_json: Returns a JSON object without secrets, None if a text is none.
    """
    value: _Value | None = None
    for line, mapping in zip(lines, _find_mappings(lines), strict=True):
        if value is not None and value.continues(line):
            continue
        value = None
        json = line.find("{")
        start = _find_secret(line[:_LINE_CHARACTERS] if json < 0 else line[: min(json, _LINE_CHARACTERS)], mapping)
        document = redact_json(line[json:]) if json >= 0 and start is None else None
        if document is not None:
            yield _redact_urls(line[:json]) + document
            continue
        shown = _truncated(line)
        start = start or _find_secret(shown, mapping)
        if start is None:
            yield _redact_urls(shown)
        else:
            value = _Value(line[: start[0]], line[start[1] :])
            yield f"{_redact_urls(line[: start[1]])} {REDACTED}"


def _truncated(line: str) -> str:
    more = len(line) - _LINE_CHARACTERS
    return line if more <= 0 else f"{line[:_LINE_CHARACTERS]} [{more} characters removed]"


class _Mapping:
    """The lines with the keys of one mapping, and whether one of them is the name of a secret: `name: DB_PASSWORD`."""

    has_secret_name = False


def _find_mappings(lines: Sequence[str]) -> Sequence[_Mapping]:
    """Return for each line the mapping that it is in, as its indentation shows; a value may come before its name."""
    found: list[_Mapping] = []
    around: list[tuple[int, _Mapping]] = []
    for line in lines:
        pairs = list(_PAIR.finditer(line, 0, _LINE_CHARACTERS))
        before = line[: pairs[0].start()].rstrip("\"'") if pairs else ""
        column = len(before) if pairs else _indent_of(line)
        is_item = before.rstrip("{ ").endswith("-")
        while line.strip() and around and (around[-1][0] > column or (is_item and around[-1][0] == column)):
            around.pop()
        if not around or around[-1][0] < column:
            around.append((column, _Mapping()))
        found.append(around[-1][1])
        found[-1].has_secret_name |= any(is_secret_name(pair[1] or "") for pair in pairs)
    return found


def _find_secret(line: str, mapping: _Mapping) -> tuple[int, int] | None:
    """Return where the name of the first secret and its value begin; None without a secret."""
    key = _PRIVATE_KEY.search(line)
    for name in _NAME.finditer(line, 0, key.start() if key is not None else len(line)):
        after = _ASSIGNS.match(line, name.end())
        # Also `--password x`, and `Bearer x`.
        is_given = after is not None or (name[0].startswith("-") or name[0].lower() == "bearer")
        is_value = name[0] == "value" and mapping.has_secret_name
        if is_given and (is_value or is_secret_name(name[0]) or name[0].lower() == "bearer"):
            return name.start(), name.end() if after is None else after.end()
    return None if key is None else (key.start(), key.start())


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


class _Value:
    """The value of a secret, which may continue in the next lines.

    Args:
        before: The line up to the secret's name.
        value: What follows the name in that line.
    """

    def __init__(self, before: str, value: str) -> None:
        margin = before.rstrip("\"'")
        is_first = not margin.strip(" \t-?")
        self._indent = len(margin) if is_first else _indent_of(before)
        self._is_key = _PRIVATE_KEY.search(value) is not None
        self._is_empty = True
        self._is_quoted = value.lstrip()[:1] in {'"', "'"}
        self._quote = ""
        self._depth = 0
        self._is_escaped = False
        self._read(value)

    def continues(self, line: str) -> bool:
        """Return whether the value continues in this line, which is read then."""
        indent = _indent_of(line)
        is_item = indent == self._indent and line[indent : indent + 2].strip() == "-"
        is_open = self._is_key or self._is_empty or self._is_escaped or self._quote or self._depth > 0
        if not (is_open or is_item or indent > self._indent or not line.strip()):
            return False
        self._read(line)
        return True

    def _read(self, text: str) -> None:
        self._is_key = self._is_key and _KEY_END not in text
        self._is_empty = self._is_empty and not text.strip()
        self._is_escaped = text.endswith("\\")
        at = 0
        while at < len(text):
            at = self._step(text, at)
        if len(self._quote) == 1 and not self._is_quoted:  # an apostrophe
            self._quote = ""

    def _step(self, text: str, at: int) -> int:
        """Read a character or a quote, and return where the next one is."""
        if self._quote:
            if text[at] == "\\" and "'" not in self._quote:
                return at + 2
            if text.startswith(self._quote, at):
                at += len(self._quote) - 1
                self._quote, self._is_quoted = "", False
            return at + 1
        quote = next((quote for quote in _QUOTES if text.startswith(quote, at)), "")
        self._quote = quote
        self._depth += _BRACKETS.get(text[at], 0)
        return at + (len(quote) or 1)


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


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
