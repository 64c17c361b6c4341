# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The quick check agrees with jsonschema."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cni_bridge_spec import JsonObject, JsonValue, SchemaError, load_schema, load_validator, schema_names
from cni_bridge_spec.quick_check import compile_check

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


@pytest.mark.parametrize("schema", [PORT, OPTIONS, CLOSED])
@given(value=VALUES)
def test_the_quick_check_agrees_with_jsonschema(schema: JsonObject, value: JsonValue) -> None:
    """For any value both accept it, or both reject it."""
    check = compile_check(schema)
    assert check is not None
    assert check(value) is Draft202012Validator(schema).is_valid(value)


RECEIVED = [name for name in schema_names() if not name.startswith("admin/")]
"""The daemon sends the documents of the admin socket, and validates none."""


@pytest.mark.parametrize("name", sorted({*RECEIVED} - {"cnm/_defs", "state/endpoint", "state/snapshot"}))
def test_every_schema_of_calls_and_plugins_has_a_quick_check(name: str) -> None:
    """The daemon needs jsonschema only to explain an error."""
    assert compile_check(load_schema(name)) is not None


@pytest.mark.parametrize("keyword", ["enum", "prefixItems", "anyOf", "patternProperties", "exclusiveMinimum"])
def test_an_unknown_keyword_disables_the_quick_check(keyword: str) -> None:
    """It does so at any depth."""
    assert compile_check({"type": "object", keyword: []}) is None
    assert compile_check({"properties": {"a": {keyword: []}}}) is None


def test_an_invalid_value_is_explained() -> None:
    """The error has the path of the value, with its index in an array."""
    ports = [{"Proto": 6, "Port": 80}, {"Proto": 6, "Port": 70000}]
    document: JsonObject = {
        "NetworkID": "6f" * 32,
        "EndpointID": "77" * 32,
        "Options": {"com.docker.network.portmap": ports},
    }
    with pytest.raises(SchemaError, match=r"portmap\[1\].Port: 70000 is greater than the maximum of 65535"):
        load_validator("cnm/ProgramExternalConnectivity")(document)
