# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The HTTP API with everything that can be made from the schemas of Docker's calls, and more.

The answer always has status 200 and a JSON object; no traceback and no bug is logged. A refused call changes nothing.
Store and runtime are real; the only network has no configuration.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_int, find_object, find_str, get_list, load_schema
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.settings import Settings
from cnm_bridge.server.rpc import Method
from tests.contract.serving import Served, serving
from tests.records import network_record

_KNOWN: Final = frozenset(
    {
        *("$schema", "$comment", "title", "description", "type", "required", "properties", "items", "pattern"),
        *("additionalProperties", "propertyNames", "maxLength", "maxItems", "maxProperties"),
        *("minimum", "maximum"),
    }
)
"""The keywords that the schemas of Docker's calls use; any other one is an error."""
_FEW: Final = 3
_TEXT: Final = st.text(st.characters(codec=None), max_size=40)
_ODD: Final = st.sampled_from(
    [
        "",
        "..",
        "../../etc/passwd",
        "/",
        "/dev/watchdog",
        "a\0b",
        "\ud800",
        "-",
        "--help",
        "$(id)",
        "é",
        "a" * 4096,
        "::",
    ]
)

ANY: Final[st.SearchStrategy[JsonValue]] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT | _ODD,
    lambda inner: st.lists(inner, max_size=_FEW) | st.dictionaries(_TEXT, inner, max_size=_FEW),
    max_leaves=8,
)
"""Any JSON, often with strings that do harm elsewhere."""


def fitting(schema: JsonObject) -> st.SearchStrategy[JsonValue]:
    """Return documents that fit a schema (without references, as returned by `load_schema`)."""
    unknown = set(schema) - _KNOWN
    assert not unknown, f"no strategy for {sorted(unknown)}"
    wanted = schema.get("type")
    kinds = wanted if isinstance(wanted, list) else [wanted]
    return st.one_of([_of_type(schema, kind) for kind in kinds])


def almost_fitting(schema: JsonObject) -> st.SearchStrategy[JsonValue]:
    """Return documents that would fit except for one or more of their parts."""
    return st.builds(_spoilt, fitting(schema), st.integers(0, 50), ANY | _ODD, st.booleans())


def _of_type(schema: JsonObject, kind: JsonValue) -> st.SearchStrategy[JsonValue]:
    integers = st.integers(min_value=find_int(schema, "minimum"), max_value=find_int(schema, "maximum"))
    simple = {"null": st.none(), "boolean": st.booleans(), "integer": integers}
    if kind in simple:
        return simple[str(kind)]
    if kind == "string":
        pattern = find_str(schema, "pattern")
        most = find_int(schema, "maxLength") or 200
        texts = _TEXT if pattern is None else st.from_regex(pattern.replace(r"(?![\s\S])", r"\Z"))
        return texts.filter(lambda text: len(text) <= most)
    if kind == "array":
        items = find_object(schema, "items")
        return st.lists(ANY if items is None else fitting(items), max_size=_FEW)
    return ANY if kind is None else _objects(schema)


def _objects(schema: JsonObject) -> st.SearchStrategy[JsonValue]:
    properties = find_object(schema, "properties") or {}
    parts = {key: fitting(as_object(part, key)) for key, part in properties.items()}
    needed = {str(key) for key in get_list(schema, "required")}
    known = st.fixed_dictionaries(
        {key: parts[key] for key in needed}, optional={key: part for key, part in parts.items() if key not in needed}
    )
    others = find_object(schema, "additionalProperties")
    more = st.dictionaries(_TEXT, ANY if others is None else fitting(others), max_size=_FEW)
    return st.builds(lambda first, second: {**second, **first}, known, more)


def _spoilt(document: JsonValue, where: int, by: JsonValue, *remove: bool) -> JsonValue:
    """Replace or remove the part number `where`, modulo their number, of a document."""
    paths = list(_paths(document, ()))
    path = paths[where % len(paths)]
    return _with(document, path, by, remove=bool(path) and remove[0])


def _paths(part: JsonValue, path: tuple[str | int, ...]) -> list[tuple[str | int, ...]]:
    below: list[tuple[str | int, ...]] = []
    if isinstance(part, Mapping):
        below = [found for key, item in part.items() for found in _paths(item, (*path, key))]
    elif isinstance(part, list):
        below = [found for index, item in enumerate(part) for found in _paths(item, (*path, index))]
    return [path, *below]


def _with(part: JsonValue, path: tuple[str | int, ...], by: JsonValue, *, remove: bool) -> JsonValue:
    if not path:
        return by
    step, *rest = path
    if isinstance(part, Mapping):
        return {
            key: _with(item, tuple(rest), by, remove=remove) if key == step else item
            for key, item in part.items()
            if not (remove and not rest and key == step)
        }
    assert isinstance(part, list)
    return [_with(item, tuple(rest), by, remove=remove) if index == step else item for index, item in enumerate(part)]


NETWORK: Final = "a1" * 32
"""A network that exists, without a configuration."""
ENDPOINT: Final = "e2" * 32

_RECORD: Final = network_record(NETWORK, configuration="gone", name=None, options={"cni.network": "gone"})
_CHANGES: Final = frozenset({"NetworkDriver.CreateNetwork", "NetworkDriver.DeleteNetwork"})


def _methods(directory: Path) -> dict[str, Method]:
    store = Store.open(directory / "table")
    try:
        return {method.name: method for method in assemble(Settings(), store).methods}
    finally:
        store.close()


def _bodies(schema: JsonObject) -> st.SearchStrategy[bytes]:
    """Return bodies that fit, that almost fit, any JSON and any bytes, with known or unknown IDs."""
    known = st.fixed_dictionaries({}, optional={"NetworkID": st.just(NETWORK), "EndpointID": st.just(ENDPOINT)})
    documents = st.one_of(fitting(schema), almost_fitting(schema), ANY)
    return st.one_of(st.builds(_render, documents, known), st.binary(max_size=200))


def _render(document: JsonValue, known: dict[str, JsonValue]) -> bytes:
    return json.dumps({**document, **known} if isinstance(document, dict) else document).encode()


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_any_body_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every call answers any body with status 200 and a JSON object, and changes nothing if it refuses."""
    table = {name: method for name, method in _methods(tmp_path).items() if method.schema}
    strategy = st.sampled_from(sorted(table)).flatmap(
        lambda name: st.tuples(st.just(name), _bodies(load_schema(table[name].schema or "")))
    )
    with asyncio.Runner() as runner:
        context = serving(tmp_path)
        served = runner.run(context.__aenter__())
        try:

            @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
            @given(strategy)
            def is_answered(call: tuple[str, bytes]) -> None:
                runner.run(_check_answer(served, *call))

            is_answered()
        finally:
            runner.run(context.__aexit__(None, None, None))
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err
    assert "rpc.bug" not in captured.out + captured.err


async def _check_answer(served: Served, name: str, body: bytes) -> None:
    if served.store.find_network(_RECORD.id) is None:
        await served.store.put_network(_RECORD)
    before = served.records()
    status, answer = await served.post(name, body)
    assert status == 200
    assert isinstance(answer, dict)
    error = answer.get("Error" if name.startswith("IpamDriver.") else "Err")
    assert "internal error" not in str(error)
    assert "Traceback" not in str(answer)
    if error is not None or name not in _CHANGES:
        assert served.records() == before, f"{name} has changed what is stored"
    if name == "NetworkDriver.CreateNetwork" and "Err" not in answer:
        assert json.loads(body)["NetworkID"] == NETWORK, "only the existing network can be made: there is no list"
