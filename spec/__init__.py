# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""JSON schemas of everything that is received or stored, and typed access to JSON."""

from cni_bridge_spec.validate import SchemaError, Validator, load_schema, load_validator
from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
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

__all__ = [
    "JsonError",
    "JsonObject",
    "JsonSyntaxError",
    "JsonValue",
    "SchemaError",
    "Validator",
    "as_object",
    "find_int",
    "find_object",
    "find_str",
    "get_bool",
    "get_int",
    "get_ints",
    "get_list",
    "get_object",
    "get_objects",
    "get_str",
    "get_strings",
    "load_schema",
    "load_validator",
    "parse_json",
    "render_json",
]
