# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether Docker finds the driver of a managed plugin, by its refusal of a network that it cannot make."""

from pathlib import Path

import pytest
from aiohttp import web

from cni_bridge_spec import JsonValue
from cnm_bridge.operator.doctor.gather import finds_driver
from tests.answering_engine import Handler, answering


@pytest.mark.parametrize(
    ("message", "is_found"),
    [
        ("could not resolve driver cni:latest in registry", False),
        ("invalid pool request: null ipam driver does not handle specific address pool requests", True),
    ],
)
async def test_a_refusal(tmp_path: Path, message: str, *, is_found: bool) -> None:
    """The text says whether it was the driver that is missing."""
    async with answering(tmp_path / "s", {"networks/create": {"message": message}}, status=500) as engine:
        assert await finds_driver(engine, "cni:latest") is is_found


async def test_a_network_that_is_made_all_the_same(tmp_path: Path) -> None:
    """It is removed."""
    requests: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(request.method)
        return web.Response(status=204)

    answers: dict[str, JsonValue | Handler] = {"networks/create": {"Id": "n1"}, "networks/cni-bridge-doctor": answer}
    async with answering(tmp_path / "s", answers) as engine:
        assert await finds_driver(engine, "cni:latest")
    assert requests == ["DELETE"]
