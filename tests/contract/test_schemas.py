# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Every schema is valid, has a title, and refuses something."""

import pytest
from jsonschema import Draft202012Validator

from cni_bridge_spec import SchemaError, load_schema, load_validator
from tests.schemas import SCHEMA_NAMES


@pytest.mark.parametrize("name", SCHEMA_NAMES)
def test_schema_is_valid_and_titled(name: str) -> None:
    """A file in `spec/` is a JSON Schema of draft 2020-12 with a title."""
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema.get("title"), f"{name} has no title"


@pytest.mark.parametrize("name", [name for name in SCHEMA_NAMES if not name.endswith("/_defs")])
def test_schema_requires_an_object(name: str) -> None:
    """Each schema refuses an array, and its references resolve."""
    with pytest.raises(SchemaError):
        load_validator(name)([])


def test_an_error_names_the_part_of_the_document() -> None:
    """The faulty part is named as in JavaScript, e.g. `IPv4Data[0].Pool`."""
    with pytest.raises(SchemaError) as caught:
        load_validator("cnm/CreateNetwork")({"NetworkID": "a" * 64, "IPv4Data": [{"Pool": 1}]})
    assert caught.value.where == "IPv4Data[0].Pool"
    assert "not of type 'string'" in caught.value.reason


def test_an_error_does_not_repeat_a_whole_document() -> None:
    """The message is short, however long the faulty value is."""
    with pytest.raises(SchemaError) as caught:
        load_validator("cnm/NetworkReference")({"NetworkID": "x" * 100_000})
    assert len(str(caught.value)) < 300
