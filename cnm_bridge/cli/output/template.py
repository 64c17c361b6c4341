# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""The templates of `--format`, a small part of those of docker; pure.

`{{.Id}}` stands for a value, `{{.Network.Name}}` for one within another, `{{json .}}` and `{{json .Ports}}` for JSON.
`\t` and `\n` stand for tab and new line. A name may begin with a lower-case letter, as in the JSON documents.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, render_json
from cnm_bridge.errors import BadOption

__all__ = ["Template"]

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
        if "{{" not in text or "{{" in _ACTION.sub("", text) or "}}" in _ACTION.sub("", text):
            raise BadOption("--format", f"{text!r} is neither table nor json nor a template such as {{{{.Id}}}}")
        for match in _ACTION.finditer(text):
            if not _EXPRESSION.fullmatch(match[1]):
                raise BadOption(
                    "--format", f"cannot evaluate {match[0]}; possible are {{{{.Name}}}} and {{{{json .}}}}"
                )
        self._text = text

    def render(self, row: JsonObject) -> str:
        """Return the line of a row.

        Raises:
            BadOption: The row has no such value.
        """
        return _ACTION.sub(lambda match: _evaluate(match[1], row), self._text)


def _evaluate(expression: str, row: JsonObject) -> str:
    match = _EXPRESSION.fullmatch(expression)
    assert match is not None  # noqa: S101  # it has been checked
    as_json, path = match.groups()
    value: JsonValue = row
    for name in path.split(".") if path else ():
        value = _find(value, name)
    return render_json(value).decode() if as_json or not isinstance(value, str | int | None) else _plain(value)


def _find(value: JsonValue, name: str) -> JsonValue:
    if not isinstance(value, Mapping):
        raise BadOption("--format", f"there is no {name} in {value!r}")
    names = {_capitalized(key): key for key in value}
    if _capitalized(name) not in names:
        near = get_close_matches(_capitalized(name), names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(names))}"
        raise BadOption("--format", f"there is no {name}; {hint}")
    return value[names[_capitalized(name)]]


def _capitalized(name: str) -> str:
    return name[:1].upper() + name[1:]


def _plain(value: str | int | None) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
