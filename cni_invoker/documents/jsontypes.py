# SPDX-License-Identifier: Apache-2.0
"""Typed access to JSON: the place where untyped documents become typed values.

Any module may import this one; it knows nothing but JSON. A getter raises `JsonError`, which names the key and the
types, rather than a bare `KeyError`.
"""

import json
import math
from collections.abc import Mapping, Sequence
from sys import intern
from typing import Final, Never, TypeVar

JsonValue = None | bool | int | float | str | Sequence["JsonValue"] | Mapping[str, "JsonValue"]
JsonObject = Mapping[str, JsonValue]

T = TypeVar("T")

_TYPE_NAMES: Final = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "an object",
}

_EXACT: Final = 1 << 53
"""Larger whole numbers are not all exact as floats."""

_LEVELS: Final = 200
"""How deeply a document may be nested. Real ones never come near; each level costs Python stack when written."""


class JsonError(ValueError):
    """A document does not have the shape that its reader expects; the message names the key."""


class JsonSyntaxError(JsonError):
    """A text is not JSON, for the parser's `reason`; lines and columns are counted from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


def parse_json(data: bytes) -> JsonValue:
    """Parse a JSON text (UTF-8).

    Integers keep all digits. A whole number becomes an integer however it is written, `1500.0` and `1.5e3` too: plugins
    written in Go need integers, and libcni, which re-encodes configurations, gives them those.

    `NaN` and `Infinity`, which Python's parser accepts, are refused; so are numbers that are too large and documents
    that are nested too deeply, because they could not be written back.

    Raises:
        JsonSyntaxError: The text is not UTF-8 or not JSON.
    """
    try:
        text = data.decode("utf-8")
        value: JsonValue = _DECODER.decode(text)
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        column = exc.start - data.rfind(b"\n", 0, exc.start)
        raise JsonSyntaxError("not UTF-8", line, column) from exc
    except json.JSONDecodeError as exc:
        raise JsonSyntaxError(exc.msg, exc.lineno, exc.colno) from exc
    except RecursionError as exc:
        raise JsonSyntaxError("nested too deeply", 1, 1) from exc
    except ValueError as exc:  # an integer of more digits than Python converts
        if isinstance(exc, JsonError):
            raise
        raise JsonSyntaxError(str(exc), 1, 1) from exc
    if data.count(b"{") + data.count(b"[") > _LEVELS and _is_deep(value):
        raise JsonSyntaxError("nested too deeply", 1, 1)
    return value


def check_json(value: object) -> None:
    """Raise `JsonError` if a value that a program has made cannot be written, or could not be read again, as JSON."""
    try:
        text = _COMPACT_ENCODER.encode(value)
    except RecursionError as exc:
        raise JsonError("nested too deeply") from exc
    except (TypeError, ValueError) as exc:
        raise JsonError(f"not JSON: {exc}") from exc
    if text.count("{") + text.count("[") > _LEVELS and _is_deep(value):
        raise JsonError("nested too deeply")


J = TypeVar("J", bound=JsonValue)


def copy_json(value: J) -> J:
    """Return a value whose objects and arrays are new ones, so that a change of one does not change the other."""
    if isinstance(value, dict):
        return {key: copy_json(item) for key, item in value.items()}  # type: ignore[return-value]  # of the same type
    if isinstance(value, list | tuple):
        return [copy_json(item) for item in value]  # type: ignore[return-value]
    return value


def _refuse_constant(name: str) -> Never:
    raise JsonSyntaxError(f"{name} is not JSON", 1, 1)


def _parse_float(text: str) -> int | float:
    number = float(text)
    if math.isinf(number):
        raise JsonSyntaxError(f"the number {text} is too large", 1, 1)
    return int(number) if number.is_integer() and abs(number) < _EXACT else number


def _share_keys(pairs: Sequence[tuple[str, JsonValue]]) -> JsonObject:
    """Return an object whose keys exist once in the process: the parser shares them within one document only."""
    return {intern(key): value for key, value in pairs}


_DECODER: Final = json.JSONDecoder(
    parse_constant=_refuse_constant, parse_float=_parse_float, object_pairs_hook=_share_keys
)


def _is_deep(value: object) -> bool:
    level: list[object] = [value]
    for _ in range(_LEVELS):
        containers = [part for part in level if isinstance(part, dict | list | tuple)]
        level = [item for part in containers for item in (part.values() if isinstance(part, dict) else part)]
    return bool(level)


def render_json(value: JsonValue, *, indent: int = 0) -> bytes:
    """Return the JSON text of a value, with keys in their original order.

    Raises:
        ValueError, TypeError: It contains NaN or an infinity, or something that is not JSON.
    """
    if not indent:
        return _COMPACT_ENCODER.encode(value).encode("ascii")
    text = json.dumps(value, allow_nan=False, indent=indent, separators=(",", ": "), default=_refuse)
    return text.encode("ascii")


def _refuse(value: object) -> Never:
    raise TypeError(f"{type(value).__name__} is not JSON")


_COMPACT_ENCODER: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":"), default=_refuse)


def as_object(value: JsonValue, what: str) -> JsonObject:
    """Return `value` if it is an object; `what` names it in the error."""
    return _check(value, dict, what)


def get_str(obj: JsonObject, key: str) -> str:
    """Return the string under `key`."""
    return _get(obj, key, str)


def find_str(obj: JsonObject, key: str) -> str | None:
    """Return the string under `key`, or None if it is absent or null."""
    return _find(obj, key, str)


def get_int(obj: JsonObject, key: str) -> int:
    """Return the integer under `key`; a boolean is not an integer."""
    return _get(obj, key, int)


def find_int(obj: JsonObject, key: str) -> int | None:
    """Return the integer under `key`, or None if it is absent or null; a boolean is not an integer."""
    return _find(obj, key, int)


def get_bool(obj: JsonObject, key: str, *, default: bool = False) -> bool:
    """Return the boolean under `key`, or `default` if it is absent or null."""
    found = _find(obj, key, bool)
    return default if found is None else found


def get_object(obj: JsonObject, key: str) -> JsonObject:
    """Return the object under `key`."""
    return _get(obj, key, dict)


def find_object(obj: JsonObject, key: str) -> JsonObject | None:
    """Return the object under `key`, or None if it is absent or null."""
    return _find(obj, key, dict)


def get_list(obj: JsonObject, key: str) -> Sequence[JsonValue]:
    """Return the array under `key`, empty if it is absent or null."""
    return _find(obj, key, list) or []


def get_objects(obj: JsonObject, key: str) -> tuple[JsonObject, ...]:
    """Return the array of objects under `key`, empty if it is absent or null."""
    return tuple(_check(item, dict, f"{key}[{i}]") for i, item in enumerate(get_list(obj, key)))


def get_strings(obj: JsonObject, key: str) -> tuple[str, ...]:
    """Return the array of strings under `key`, empty if it is absent or null."""
    return tuple(_check(item, str, f"{key}[{i}]") for i, item in enumerate(get_list(obj, key)))


def get_ints(obj: JsonObject, key: str) -> tuple[int, ...]:
    """Return the array of whole numbers under `key`, empty if it is absent or null."""
    return tuple(_check(item, int, f"{key}[{i}]") for i, item in enumerate(get_list(obj, key)))


ANY: Final = "*"
"""Stands for every key of an object, in its shape."""


class Required:
    """The shape of a value that must be there."""

    def __init__(self, shape: "Shape") -> None:
        self.shape = shape


Shape = type | list["Shape"] | Mapping[str, "Shape | Required"]
"""What a value must be: of a type, an array of a shape, or an object whose known keys have shapes."""


def check_shape(value: JsonValue, shape: Shape, where: str = "") -> None:
    """Raise `JsonError`, which names the place, e.g. `ips[0].address`, if a value does not have a shape.

    Objects may have further keys. A null stands for an absent key, as Go prints it.
    """
    if isinstance(shape, type):
        _check(value, shape, where)
    elif isinstance(shape, list):
        for index, item in enumerate(_check(value, list, where)):
            check_shape(item, shape[0], f"{where}[{index}]")
    else:
        found = _check(value, dict, where or "the document")
        for key, inner in (dict.fromkeys(found, shape[ANY]) if ANY in shape else shape).items():
            place = f"{where}.{key}" if where else key
            if found.get(key) is not None:
                check_shape(found[key], inner.shape if isinstance(inner, Required) else inner, place)
            elif isinstance(inner, Required):
                raise JsonError(f"{place} is missing")


def show(value: object) -> str:
    """Return how an error shows a value: only the type of what may be a credential, or the whole document."""
    return _TYPE_NAMES[type(value)] if isinstance(value, str | list | dict) else repr(value)


def _get(obj: JsonObject, key: str, wanted: type[T]) -> T:
    found = _find(obj, key, wanted)
    if found is None:
        raise JsonError(f"{key} is missing")
    return found


def _find(obj: JsonObject, key: str, wanted: type[T]) -> T | None:
    value = obj.get(key)
    return None if value is None else _check(value, wanted, key)


def _check(value: JsonValue, wanted: type[T], what: str) -> T:
    # bool is a subclass of int in Python, but not in JSON
    if isinstance(value, wanted) and (wanted is bool or not isinstance(value, bool)):
        return value
    if wanted is int and isinstance(value, float):
        raise JsonError(f"{what} must be a whole number, not {value}")
    found = "null" if value is None else _TYPE_NAMES.get(type(value), type(value).__name__)
    raise JsonError(f"{what} must be {_TYPE_NAMES[wanted]}, not {found}")
