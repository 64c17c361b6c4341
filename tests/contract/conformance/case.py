# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One conformance case: the input, the behaviour of plugins, the expected outcome."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

import yaml

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_object, get_int, get_object, get_objects, get_str
from tests.contract.conformance.divergences import DIVERGENCES

__all__ = ["Case", "Level", "load_cases"]

_FILE: Final = Path(__file__).parent.with_name("cni_cases.yaml")


class Level(StrEnum):
    """What the case requires, in the words of the file's `meta.levels`."""

    LIBCNI = "libcni"
    DIVERGENCE = "divergence"
    IMPROVED = "improved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A case.

    Attributes:
        id: Its name.
        area: Its subject.
        level: What it requires.
        given: The input; a remark in words if the runner makes the input.
        plugin: The behaviour of the plugins, as in `fake_plugin.py`, or a remark in words.
        expect: The expected outcome, or a remark in words.
    """

    id: str
    area: str
    level: Level
    given: JsonValue
    plugin: JsonObject = field(hash=False)
    expect: JsonObject = field(hash=False)

    @classmethod
    def from_document(cls, document: JsonObject) -> Self:
        """Return the case that an entry of the file describes."""
        return cls(
            id=get_str(document, "id"),
            area=get_str(document, "area"),
            level=Level(get_str(document, "level")),
            given=document.get("given"),
            plugin=find_object(document, "plugin") or {},
            expect=get_object(document, "expect"),
        )

    @property
    def inputs(self) -> JsonObject:
        """The input, if it is an object."""
        return as_object(self.given, f"{self.id}: given")

    def expects(self, key: str, text: str, **paths: object) -> None:
        """Assert that `text` contains the expected words, or those of the list of divergences instead.

        If the case is in that list, `text` must not contain libcni's words: a case that agrees does not belong there.

        Args:
            key: The key of `expect` that has the words; `<dir>` in them stands for `paths["dir"]`.
            text: Our words.
            paths: Paths that the case cannot contain.
        """
        words = get_str(self.expect, key)
        for name, path in paths.items():
            words = words.replace(f"<{name}>", str(path))
        divergence = DIVERGENCES.get(self.id)
        if divergence is None:
            assert words in text
        else:
            assert words not in text, f"{self.id} agrees with libcni: remove it from the list of divergences"
            assert divergence.ours.format_map({name: str(path) for name, path in paths.items()}) in text


def load_cases() -> tuple[int, tuple[Case, ...]]:
    """Return the number of cases according to the file, and the cases."""
    document = as_object(_as_json(yaml.safe_load(_FILE.read_text())), "the file of cases")
    cases = tuple(map(Case.from_document, get_objects(document, "cases")))
    return get_int(get_object(document, "meta"), "count"), cases


def _as_json(value: object) -> JsonValue:
    """Return a value that YAML has parsed, if it is JSON; YAML has more types."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return [_as_json(item) for item in value]
        case dict():
            assert all(isinstance(key, str) for key in value), f"keys of a JSON object are strings: {list(value)}"
            return {key: _as_json(item) for key, item in value.items()}
        case _:
            raise TypeError(f"{value!r} is not JSON")
