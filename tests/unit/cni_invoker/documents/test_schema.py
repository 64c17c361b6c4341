# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The check of CNI's documents agrees with the library jsonschema, which the package itself does not need."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, as_object, get_object
from cni_invoker.documents.schema import SchemaError, load_schema, load_validator, show

NAMES = ("error", "list", "plugin", "result")
KEYS = ("name", "type", "plugins", "cniVersion", "cniVersions", "disableGC", "capabilities", "ipam", "msg", "code")
MORE = ("ips", "address", "interface", "routes", "dst", "dns", "search", "ip4", "ip", "interfaces", "mtu", "sandbox")
SCALARS = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([1.0, 0.5]) | st.text("ab", max_size=2)
VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, *MORE]), inner, max_size=5),
    max_leaves=12,
)


@pytest.mark.parametrize("name", NAMES)
@given(value=VALUES)
def test_the_check_agrees_with_jsonschema(name: str, value: JsonValue) -> None:
    """Both accept a value, or both reject it, and the error is one of jsonschema's, with a type instead of a text."""
    errors = list(Draft202012Validator(load_schema(name)).iter_errors(value))
    found: SchemaError | None = None
    try:
        load_validator(name)(value)
    except SchemaError as exc:
        found = exc
    assert (found is None) is (errors == [])
    if found is not None:
        assert any(
            _path(error.absolute_path) == found.where and _without_value(error)[:100] == found.reason[:100]
            for error in errors
        )
        assert _depth(found.where) == min(len(error.absolute_path) for error in errors)


def _without_value(error: ValidationError) -> str:
    value = error.instance
    return error.message.replace(repr(value), show(value), 1)


def _path(steps: object) -> str:
    path = ""
    assert hasattr(steps, "__iter__")
    for step in steps:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else str(step)
    return path


def _depth(where: str) -> int:
    return 0 if not where else 1 + where.count(".") + where.count("[")


@pytest.mark.parametrize("name", NAMES)
def test_a_schema_is_a_json_schema(name: str) -> None:
    """Each is a valid schema of draft 2020-12 with a title and a description."""
    schema = load_schema(name)
    Draft202012Validator.check_schema(dict(schema))
    assert schema["title"]
    assert schema["description"]


def keywords(schema: JsonObject) -> Iterator[str]:
    """The keywords of a schema and of its parts."""
    yield from schema
    parts = [*get_object(schema, "properties").values()] if "properties" in schema else []
    parts += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for part in parts:
        yield from keywords(as_object(part, "a part"))


@pytest.mark.parametrize("name", NAMES)
def test_the_check_knows_all_keywords(name: str) -> None:
    """Another keyword would be ignored in silence."""
    known = {"type", "required", "properties", "additionalProperties", "items", "minLength"}
    assert {*keywords(load_schema(name))} <= known | {"title", "description"}


def test_a_hostile_document_is_explained_at_once() -> None:
    """Of a million wrong items some are looked at, and a long value is truncated."""
    with pytest.raises(SchemaError, match=r"^plugins\[0\]: 0 is not of type 'object'$"):
        load_validator("list")({"name": "blue", "plugins": list(range(1_000_000))})
    with pytest.raises(SchemaError) as caught:
        load_validator("list")({"name": ["x" * 100_000]})
    assert len(str(caught.value)) < 250
