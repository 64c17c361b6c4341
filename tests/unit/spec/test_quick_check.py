# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A quick check agrees with jsonschema."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cni_bridge_spec import load_schema, schema_names
from cni_bridge_spec.quick_check import compile_check
from cni_invoker.documents.jsontypes import JsonObject, JsonValue

PORT: JsonObject = {
    "type": "object",
    "description": "a port",
    "required": ["Proto", "Port"],
    "properties": {
        "Proto": {"type": "integer"},
        "Port": {"type": "integer", "minimum": 1, "maximum": 9},
        "HostIP": {"type": ["string", "null"], "maxLength": 3, "pattern": "^[a-c]*$"},
        "Limit": {"minimum": 0, "maximum": 1},
    },
}
OPTIONS: JsonObject = {
    "maxProperties": 2,
    "propertyNames": {"minLength": 4},
    "properties": {"Proto": {"type": "array", "maxItems": 1, "items": {"type": "string", "minLength": 2}}},
    "additionalProperties": {"type": "string"},
}
ALONE: list[JsonObject] = [
    {"minimum": 1},
    {"maximum": 1},
    {"minLength": 2},
    {"maxLength": 2},
    {"maxItems": 1},
    {"maxProperties": 1},
    {"pattern": "^a"},
    {"type": "number"},
    {"type": ["integer", "null"]},
    {"required": ["Port"]},
    {"enum": ["a", "b", None]},
    {"anyOf": [{"type": "null"}, {"minimum": 1}]},
]
"""One keyword each, so that no other one decides."""
CLOSED: JsonObject = {"properties": {"Proto": {}}, "additionalProperties": False}

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 11),
    st.sampled_from([1.0, 0.5, 12.0]),
    st.text("abd", max_size=5),
)
PORTS = st.dictionaries(st.sampled_from(["Proto", "Port", "HostIP", "Limit", "Other"]), SCALARS)


VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    PORTS,
    st.dictionaries(st.sampled_from(["Proto", "Port", "Other", "X"]), st.lists(st.text("ab"), max_size=2) | SCALARS),
)


@pytest.mark.parametrize("schema", [PORT, OPTIONS, CLOSED, *ALONE])
@given(value=VALUES)
def test_the_check_agrees_with_jsonschema(schema: JsonObject, value: JsonValue) -> None:
    """For any value both accept it, or both reject it."""
    check = compile_check(schema)
    assert check(value) is Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize("keyword", ["prefixItems", "patternProperties", "exclusiveMinimum"])
def test_an_unknown_keyword_is_an_error(keyword: str) -> None:
    """It would be ignored in silence otherwise; at any depth."""
    with pytest.raises(KeyError, match=keyword):
        compile_check({"type": "object", keyword: []})
    with pytest.raises(KeyError, match=keyword):
        compile_check({"properties": {"a": {keyword: []}}})


@pytest.mark.parametrize("name", schema_names())
def test_every_schema_can_be_compiled(name: str) -> None:
    """The daemon needs jsonschema only to explain an error."""
    compile_check(load_schema(name))
