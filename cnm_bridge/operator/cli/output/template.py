# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""The templates of `--format`, a small part of those of docker; pure.

`{{.Id}}` stands for a value, `{{.Network.Name}}` for one within another, `{{json .}}` and `{{json .Ports}}` for JSON.
`\t` and `\n` stand for tab and new line. A name may begin with a lower-case letter, as in the JSON documents.
"""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, render_json
from cni_invoker.printable import printable
from cnm_bridge.core.errors import BadOption

_ACTION: Final = re.compile(r"\{\{(.*?)\}\}")
_EXPRESSION: Final = re.compile(r"\s*(json\s+)?\.((?:\w+)(?:\.\w+)*)?\s*")
_ESCAPES: Final = {r"\t": "\t", r"\n": "\n"}


class Template:
    """A template that makes a line of each row.

    Args:
        text: The template.

    Raises:
        BadOption: It is malformed.
    """

    def __init__(self, text: str) -> None:
        for escape, letter in _ESCAPES.items():
            text = text.replace(escape, letter)
        rest = _ACTION.sub("", text)
        for opening, closing in (("{{", "}}"), ("}}", "{{")):
            if opening in rest:
                raise BadOption("--format", f"{text!r} is not a template: {closing} is missing")
        if "{{" not in text:
            raise BadOption("--format", f"{text!r} is neither table nor json nor a template such as {{{{.Id}}}}")
        for match in _ACTION.finditer(text):
            if not _EXPRESSION.fullmatch(match[1]):
                raise BadOption(
                    "--format", f"cannot evaluate {match[0]}; possible are {{{{.Name}}}} and {{{{json .}}}}"
                )
        self._text = text

    def refuse_unknown(self, rows: Iterable[JsonObject]) -> None:
        """Refuse a name that no row has.

        Args:
            rows: At least one. What is null in all of them may have any names within it.

        Raises:
            BadOption: No row has a value of that name; the error has all names that there are.
        """
        everything = list(rows)
        for match in _ACTION.finditer(self._text):
            reached: list[JsonValue] = [*everything]
            for name in _parse(match[1])[1]:
                reached = _step(reached, name)

    def render(self, row: JsonObject) -> str:
        """Return the line of a row; a value that the row lacks is empty."""
        return _ACTION.sub(lambda match: _evaluate(match[1], row), self._text)


def _parse(expression: str) -> tuple[bool, list[str]]:
    """Return whether an expression stands for JSON, and the names of its path."""
    match = _EXPRESSION.fullmatch(expression)
    assert match is not None  # noqa: S101  # it has been checked
    as_json, path = match.groups()
    return bool(as_json), path.split(".") if path else []


def _evaluate(expression: str, row: JsonObject) -> str:
    as_json, path = _parse(expression)
    value: JsonValue = row
    for name in path:
        names = _names(value)
        key = names.get(_capitalized(name))
        value = value[key] if isinstance(value, Mapping) and key is not None else None
    return render_json(value).decode() if as_json or not isinstance(value, str | int | None) else _plain(value)


def _step(values: Iterable[JsonValue], name: str) -> list[JsonValue]:
    """Return what some values have under a name; nothing if all of them are null.

    Raises:
        BadOption: None has such a name.
    """
    present = [value for value in values if value is not None]
    objects = [value for value in present if isinstance(value, Mapping)]
    if present and not objects:
        raise BadOption("--format", f"there is no {name} in {present[0]!r}")
    known = sorted({found for value in objects for found in _names(value)})
    wanted = _capitalized(name)
    if objects and wanted not in known:
        near = get_close_matches(wanted, known, n=1)
        hint = f"did you mean {near[0]}? There are" if near else "there are"
        raise BadOption("--format", f"there is no {name}; {hint} {', '.join(known)}")
    return [value[_names(value)[wanted]] for value in objects if wanted in _names(value)]


def _names(value: JsonValue) -> Mapping[str, str]:
    """Return the keys of an object by the names that templates have for them."""
    return {_capitalized(key): key for key in value} if isinstance(value, Mapping) else {}


def _capitalized(name: str) -> str:
    return name[:1].upper() + name[1:]


def _plain(value: str | int | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else printable(str(value))
