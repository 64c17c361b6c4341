# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Parsing and rendering JSON, and typed access with errors that name the key."""

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cni_bridge_spec import (
    JsonError,
    JsonSyntaxError,
    JsonValue,
    as_object,
    find_int,
    find_object,
    find_str,
    get_bool,
    get_int,
    get_ints,
    get_list,
    get_objects,
    get_str,
    get_strings,
    parse_json,
    render_json,
)

VALUES: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(VALUES)
def test_rendered_values_are_parsed_unchanged(value: JsonValue) -> None:
    """Values and the order of keys are kept."""
    again = parse_json(render_json(value))
    assert again == value
    assert parse_json(render_json(again)) == again


@given(st.binary())
def test_any_bytes_are_a_value_or_a_syntax_error(data: bytes) -> None:
    """The parser raises no other error."""
    with suppress(JsonSyntaxError):
        parse_json(data)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        (b"", 1, 1),
        (b'{"a": 1,\n "b" 2}', 2, 6),
        (b'{"a":\n"\xff"}', 2, 2),
        (b"NaN", 1, 1),
        (b"[-Infinity]", 1, 1),
        (b"[" * 200_000, 1, 1),
        (b"[" * 201 + b"]" * 201, 1, 1),
        (b'{"a":' * 250 + b"1" + b"}" * 250, 1, 1),
        (b"9" * 5000, 1, 1),
        (b"1e999", 1, 1),
    ],
)
def test_a_syntax_error_has_line_and_column(text: bytes, line: int, column: int) -> None:
    """Invalid syntax, non-finite numbers, and excessive depth or length are errors with a position."""
    with pytest.raises(JsonSyntaxError) as caught:
        parse_json(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text", [b"9007199254740993", b"-1.5", b'{"b":[1.5,{"a":null}],"a":true,"\\u00e4\\ud800":"\\u00e4"}']
)
def test_values_are_rendered_as_written(text: bytes) -> None:
    """All digits of an integer are kept, including those that a float would lose."""
    assert render_json(parse_json(text)) == text


@pytest.mark.parametrize(("text", "number"), [(b"1500.0", 1500), (b"1.5e3", 1500), (b"-20E-1", -2), (b"0.0", 0)])
def test_whole_numbers_become_integers(text: bytes, number: int) -> None:
    """No Go plugin reads `1500.0` as an MTU, and libcni would pass it on as 1500."""
    found = parse_json(text)
    assert (found, type(found)) == (number, int)
    assert render_json(found) == b"%d" % number


@given(VALUES)
def test_indented_output_is_that_of_python(value: JsonValue) -> None:
    """With `indent`, each value has a line, as from `json.dumps`."""
    assert render_json(value, indent=4).decode() == json.dumps(value, indent=4)


def test_a_fraction_is_no_integer() -> None:
    """The error shows the key and the number."""
    document = as_object(parse_json(b'{"mtu": 1500.5}'), "document")
    with pytest.raises(JsonError, match=r"mtu must be a whole number, not 1500\.5"):
        get_int(document, "mtu")


DOCUMENT = as_object(
    parse_json(b'{"s":"x","i":3,"b":true,"o":{"k":1},"l":[1],"objects":[{}],"strings":["a"],"ints":[3],"null":null}'),
    "document",
)


@pytest.mark.parametrize("key", ["null", "absent"])
def test_null_is_treated_as_missing(key: str) -> None:
    """Go writes null for unset fields."""
    assert find_str(DOCUMENT, key) is None
    assert find_int(DOCUMENT, key) is None
    assert find_object(DOCUMENT, key) is None
    assert get_bool(DOCUMENT, key) is False
    assert get_bool(DOCUMENT, key, default=True) is True
    assert get_list(DOCUMENT, key) == []
    assert get_objects(DOCUMENT, key) == ()
    assert get_strings(DOCUMENT, key) == ()
    assert get_ints(DOCUMENT, key) == ()
    with pytest.raises(JsonError, match=f"{key} is missing"):
        get_str(DOCUMENT, key)


def test_a_value_of_another_type_is_an_error() -> None:
    """The error names the key, the expected type and the actual type."""
    with pytest.raises(JsonError, match="i must be a string, not a number"):
        get_str(DOCUMENT, "i")
    with pytest.raises(JsonError, match="b must be a number, not a boolean"):
        get_int(DOCUMENT, "b")
    with pytest.raises(JsonError, match=r"l\[0\] must be an object, not a number"):
        get_objects(DOCUMENT, "l")
    with pytest.raises(JsonError, match="thing must be an object, not null"):
        as_object(json.loads("null"), "thing")
