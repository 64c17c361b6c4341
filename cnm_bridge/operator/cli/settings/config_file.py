# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads the configuration file: TOML, with one key per option of `cni-bridge serve`, spelled like the option."""

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

from cnm_bridge.core.errors import BadOption

TomlValue = str | int | float | bool | list[str] | list[dict[str, Any]]


class ValueKind(StrEnum):
    """The type of a key's value, as it appears in errors."""

    TEXT = "a text"
    TEXTS = "a list of texts"
    NUMBER = "a number"
    TRUTH = "true or false"
    TABLES = "a list of tables, [[networks]]"


def read_config_file(path: Path, kinds: Mapping[str, ValueKind]) -> Mapping[str, TomlValue]:
    """Return the values of a configuration file by option, e.g. `{"cni-conf-dir": ["/etc/cni/net.d"]}`.

    Args:
        path: The file.
        kinds: Option → type of its value.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not TOML; the text names line and column, or says that it is nested too deeply.
        BadOption: A key is not an option, or its value has another type.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except RecursionError as exc:
        raise ValueError("its arrays or tables are nested too deeply") from exc
    for key, value in document.items():
        if key not in kinds:
            raise BadOption.unknown(key, kinds)
        if not fits(kinds[key], value):
            from cni_invoker.documents.schema import show  # noqa: PLC0415 - only a mistake needs it

            raise BadOption(key, f"must be {kinds[key].value}, not {show(value)}")
    return document


def fits(kind: ValueKind, value: object) -> bool:
    """Return whether a value has the type of a key."""
    match kind:
        case ValueKind.TEXT:
            return isinstance(value, str)
        case ValueKind.TEXTS:
            return isinstance(value, list) and value != [] and all(isinstance(item, str) for item in value)
        case ValueKind.NUMBER:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ValueKind.TRUTH:
            return isinstance(value, bool)
        case ValueKind.TABLES:
            return isinstance(value, list) and all(isinstance(item, dict) for item in value)
        case _:
            assert_never(kind)
