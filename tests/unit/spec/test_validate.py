# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is invalid is refused with a reason; a quick check agrees with jsonschema."""

import subprocess
import sys
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from cni_bridge_spec import JsonObject, JsonValue, SchemaError, load_schema, load_validator
from cni_bridge_spec.quick_check import compile_check
from tests.schemas import SCHEMA_NAMES

CHECK_WITHOUT_DESCRIPTORS: Final = """
import os, resource
from cni_bridge_spec import SchemaError, load_validator
validate = load_validator("cnm/NetworkReference")
resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) - 1, 4096))
try:
    validate({})
except SchemaError as exc:
    print(exc)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
try:
    validate({})
except SchemaError as exc:
    print(exc)
"""


def test_a_document_that_cannot_be_checked() -> None:
    """Without a free descriptor the library that says what is wrong cannot be imported; later it can."""
    done = subprocess.run([sys.executable, "-c", CHECK_WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    assert first.startswith("it cannot be checked: ")
    assert "Too many open files" in first
    assert second == "'NetworkID' is a required property"


CHECK_QUICKLY: Final = """
import sys
from cni_bridge_spec import load_validator
validate = load_validator("cnm/NetworkReference")
print(validate.accepts({"NetworkID": "a" * 64}), validate.accepts({}), "jsonschema" in sys.modules)
"""


def test_the_quick_check_loads_no_library() -> None:
    """A caller learns from it whether to validate in a thread, which loads a library."""
    done = subprocess.run([sys.executable, "-c", CHECK_QUICKLY], capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\n"


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


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_every_schema_can_be_compiled(name: str) -> None:
    """The daemon needs jsonschema only to explain an error."""
    compile_check(load_schema(name))
