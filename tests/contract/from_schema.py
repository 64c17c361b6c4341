# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Documents that fit a JSON schema of `spec/`, and documents that almost fit it, for hypothesis.

Only the keywords that the schemas of Docker's calls use are supported; any other keyword is an error.
"""

from collections.abc import Mapping
from typing import Final

from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_int, find_object, find_str, get_list

__all__ = ["ANY", "almost_fitting", "fitting"]

_KNOWN: Final = frozenset(
    {
        *("$schema", "$comment", "title", "description", "type", "required", "properties", "items", "pattern"),
        *("additionalProperties", "propertyNames", "maxLength", "maxItems", "maxProperties"),
        *("minimum", "maximum"),
    }
)
_FEW: Final = 3
_TEXT: Final = st.text(st.characters(codec=None), max_size=40)
_ODD: Final = st.sampled_from(
    [
        "",
        "..",
        "../../etc/passwd",
        "/",
        "/dev/watchdog",
        "a\0b",
        "\ud800",
        "-",
        "--help",
        "$(id)",
        "é",
        "a" * 4096,
        "::",
    ]
)

ANY: Final[st.SearchStrategy[JsonValue]] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT | _ODD,
    lambda inner: st.lists(inner, max_size=_FEW) | st.dictionaries(_TEXT, inner, max_size=_FEW),
    max_leaves=8,
)
"""Any JSON, often with strings that do harm elsewhere."""


def fitting(schema: JsonObject) -> st.SearchStrategy[JsonValue]:
    """Return documents that fit a schema (without references, as returned by `load_schema`)."""
    unknown = set(schema) - _KNOWN
    assert not unknown, f"no strategy for {sorted(unknown)}"
    wanted = schema.get("type")
    kinds = wanted if isinstance(wanted, list) else [wanted]
    return st.one_of([_of_type(schema, kind) for kind in kinds])


def almost_fitting(schema: JsonObject) -> st.SearchStrategy[JsonValue]:
    """Return documents that would fit except for one or more of their parts."""
    return st.builds(_spoilt, fitting(schema), st.integers(0, 50), ANY | _ODD, st.booleans())


def _of_type(schema: JsonObject, kind: JsonValue) -> st.SearchStrategy[JsonValue]:
    integers = st.integers(min_value=find_int(schema, "minimum"), max_value=find_int(schema, "maximum"))
    simple = {"null": st.none(), "boolean": st.booleans(), "integer": integers}
    if kind in simple:
        return simple[str(kind)]
    if kind == "string":
        pattern = find_str(schema, "pattern")
        most = find_int(schema, "maxLength") or 200
        texts = _TEXT if pattern is None else st.from_regex(pattern.replace(r"(?![\s\S])", r"\Z"))
        return texts.filter(lambda text: len(text) <= most)
    if kind == "array":
        items = find_object(schema, "items")
        return st.lists(ANY if items is None else fitting(items), max_size=_FEW)
    return ANY if kind is None else _objects(schema)


def _objects(schema: JsonObject) -> st.SearchStrategy[JsonValue]:
    properties = find_object(schema, "properties") or {}
    parts = {key: fitting(as_object(part, key)) for key, part in properties.items()}
    needed = {str(key) for key in get_list(schema, "required")}
    known = st.fixed_dictionaries(
        {key: parts[key] for key in needed}, optional={key: part for key, part in parts.items() if key not in needed}
    )
    others = find_object(schema, "additionalProperties")
    more = st.dictionaries(_TEXT, ANY if others is None else fitting(others), max_size=_FEW)
    return st.builds(lambda first, second: {**second, **first}, known, more)


def _spoilt(document: JsonValue, where: int, by: JsonValue, *remove: bool) -> JsonValue:
    """Replace or remove the part number `where`, modulo their number, of a document."""
    paths = list(_paths(document, ()))
    path = paths[where % len(paths)]
    return _with(document, path, by, remove=bool(path) and remove[0])


def _paths(part: JsonValue, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    below: list[tuple[str | int, ...]] = []
    if isinstance(part, Mapping):
        below = [found for key, item in part.items() for found in _paths(item, (*path, key))]
    elif isinstance(part, list):
        below = [found for index, item in enumerate(part) for found in _paths(item, (*path, index))]
    return [path, *below]


def _with(part: JsonValue, path: tuple[str | int, ...], by: JsonValue, *, remove: bool) -> JsonValue:
    if not path:
        return by
    step, *rest = path
    if isinstance(part, Mapping):
        return {
            key: _with(item, tuple(rest), by, remove=remove) if key == step else item
            for key, item in part.items()
            if not (remove and not rest and key == step)
        }
    assert isinstance(part, list)
    return [_with(item, tuple(rest), by, remove=remove) if index == step else item for index, item in enumerate(part)]
