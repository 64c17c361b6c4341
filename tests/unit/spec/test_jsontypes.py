# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""JSON in, typed values out; whatever does not fit is named."""

import json
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spec import (
    JsonError,
    JsonNumber,
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
    get_object,
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


def _with_whole_numbers(value: JsonValue) -> JsonValue:
    """Give a value with its whole floats as integers, as far as they have 64 bits."""
    match value:
        case float() if value.is_integer() and -(1 << 63) <= value < 1 << 63 and str(value) != "-0.0":
            return int(Decimal(repr(value)))
        case list():
            return [_with_whole_numbers(item) for item in value]
        case dict():
            return {key: _with_whole_numbers(item) for key, item in value.items()}
        case _:
            return value


@given(VALUES)
def test_values_survive_their_text(value: JsonValue) -> None:
    """A value comes back from its text as it went, key order included."""
    again = parse_json(render_json(value))
    assert again == _with_whole_numbers(value)
    assert render_json(again) == render_json(_with_whole_numbers(value))


@given(st.binary())
def test_any_bytes_are_a_value_or_a_syntax_error(data: bytes) -> None:
    """No input makes the parser raise anything else."""
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
def test_a_syntax_error_has_a_place(text: bytes, line: int, column: int) -> None:
    """What is not JSON is refused with line and column, however it is broken."""
    with pytest.raises(JsonSyntaxError) as caught:
        parse_json(text)
    assert (caught.value.line, caught.value.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        b"1.10",
        b"-0",
        b"-0.0",
        b"1.5e0",
        b"1E-7",
        b"1e300",
        b"-9223372036854775809.0",
        b"9007199254740993",
        b"0.1000000000000000055511151231257827",
        b'{"b":[1.50,1.5,{"a":null}],"a":true,"\\u00e4\\ud800":"\\u00e4"}',
        b"[" * 199 + b"1.5e0" + b"]" * 199,
    ],
)
def test_numbers_stay_as_they_were_written(text: bytes) -> None:
    """A document goes on digit for digit, whatever a float would make of it."""
    assert render_json(parse_json(text)) == text


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (b"1500.0", 1500),
        (b"1.5e3", 1500),
        (b"-20E-1", -2),
        (b"0.0", 0),
        (b"9007199254740993.0", 9007199254740993),
        (b"9.223372036854775807e18", (1 << 63) - 1),
        (b"-9223372036854775808.0", -(1 << 63)),
    ],
)
def test_whole_numbers_written_as_others(text: bytes, number: int) -> None:
    """They are whole numbers, to the last digit: no plugin in Go reads `1500.0` as its MTU; libcni gives it 1500."""
    found = parse_json(text)
    assert (found, type(found)) == (number, int)
    assert render_json(found) == b"%d" % number


@pytest.mark.parametrize("text", [b"1e-999999999", b"1" * 100 + b"." + b"0" * 100_000, b"0." + b"0" * 100_000 + b"1"])
def test_numbers_of_many_digits_take_no_time(text: bytes) -> None:
    """Whether they are whole is seen without writing out all of their digits."""
    assert render_json(parse_json(text)) == text


@given(VALUES)
def test_an_indented_text(value: JsonValue) -> None:
    """For readers there is a line for each value, as Python's encoder has it, whether numbers were written or not."""
    assert render_json(value, indent=4).decode() == json.dumps(value, indent=4)
    written = render_json([JsonNumber("1.10"), value, [], {}], indent=4).decode()
    assert written == json.dumps([123456789.5, value, [], {}], indent=4).replace("123456789.5", "1.10", 1)


@pytest.mark.parametrize("value", [{"a": {1, 2}}, [JsonNumber("1.0e0"), {1, 2}]])
def test_what_is_no_json_is_not_rendered(value: JsonValue) -> None:
    """An object of Python's is refused by name."""
    with pytest.raises(TypeError, match="set is not JSON"):
        render_json(value)


def test_a_written_number_is_a_number_to_a_reader_of_errors() -> None:
    """An error shows a number as it was written."""
    document = as_object(parse_json(b'{"mtu": 1.50}'), "document")
    with pytest.raises(JsonError, match="mtu must be a string, not a number"):
        get_str(document, "mtu")
    assert str(document["mtu"]) == "1.50"


def test_a_number_with_a_fraction_where_a_whole_one_is_needed() -> None:
    """The error says what is missing."""
    document = as_object(parse_json(b'{"mtu": 1500.5, "exact": 1500.50}'), "document")
    for key in ("mtu", "exact"):
        with pytest.raises(JsonError, match=rf"{key} must be a whole number, not 1500\.5"):
            get_int(document, key)


def test_nan_is_not_rendered() -> None:
    """A value that JSON cannot hold is not written."""
    with pytest.raises(ValueError, match="JSON"):
        render_json(float("nan"))


DOCUMENT = as_object(
    parse_json(b'{"s":"x","i":3,"b":true,"o":{"k":1},"l":[1],"objects":[{}],"strings":["a"],"ints":[3],"null":null}'),
    "document",
)


def test_getters_return_what_is_there() -> None:
    """Each getter returns a value of its own type."""
    assert get_str(DOCUMENT, "s") == find_str(DOCUMENT, "s") == "x"
    assert get_int(DOCUMENT, "i") == find_int(DOCUMENT, "i") == 3
    assert get_bool(DOCUMENT, "b") is True
    assert get_object(DOCUMENT, "o") == find_object(DOCUMENT, "o") == {"k": 1}
    assert get_list(DOCUMENT, "l") == [1]
    assert get_objects(DOCUMENT, "objects") == ({},)
    assert get_strings(DOCUMENT, "strings") == ("a",)
    assert get_ints(DOCUMENT, "ints") == (3,)


@pytest.mark.parametrize("key", ["null", "absent"])
def test_null_is_absent(key: str) -> None:
    """Go writes null for what was never set; both mean "not there"."""
    assert find_str(DOCUMENT, key) is None
    assert find_int(DOCUMENT, key) is None
    assert find_object(DOCUMENT, key) is None
    assert get_bool(DOCUMENT, key) is False
    assert get_bool(DOCUMENT, key, default=True) is True
    assert get_list(DOCUMENT, key) == ()
    assert get_objects(DOCUMENT, key) == ()
    assert get_strings(DOCUMENT, key) == ()
    assert get_ints(DOCUMENT, key) == ()
    with pytest.raises(JsonError, match=f"{key} is missing"):
        get_str(DOCUMENT, key)


def test_a_wrong_type_is_named() -> None:
    """A getter says which key has which type instead."""
    with pytest.raises(JsonError, match="i must be a string, not a number"):
        get_str(DOCUMENT, "i")
    with pytest.raises(JsonError, match="b must be a number, not a boolean"):
        get_int(DOCUMENT, "b")
    with pytest.raises(JsonError, match=r"l\[0\] must be an object, not a number"):
        get_objects(DOCUMENT, "l")
    with pytest.raises(JsonError, match="thing must be an object, not null"):
        as_object(json.loads("null"), "thing")
