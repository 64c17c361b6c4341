# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The HTTP API with everything that can be made from the schemas of Docker's calls, and more.

The answer always has status 200 and a JSON object; no traceback and no bug is logged. A refused call changes nothing.
Store and runtime are real; the only network has no configuration.
"""

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cni_bridge_spec import JsonObject, JsonValue, load_schema
from cni_bridge_state import NetworkId, NetworkRecord
from cni_bridge_state.store import Store
from cnm_bridge.assembly import assemble
from cnm_bridge.core.settings import Settings
from cnm_bridge.server.rpc import Method
from tests.contract.from_schema import ANY, almost_fitting, fitting
from tests.contract.serving import Served, serving

NETWORK: Final = "a1" * 32
"""A network that exists, without a configuration."""
ENDPOINT: Final = "e2" * 32

_RECORD: Final = NetworkRecord(
    id=NetworkId(NETWORK), configuration="gone", name=None, internal=False, options={"cni.network": "gone"}
)
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
