# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether Docker finds the driver of a managed plugin, by its refusal of a network that it cannot make."""

from pathlib import Path

import pytest

from cnm_bridge.operator.doctor.gather import finds_driver
from tests.answering_engine import answering


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
    removed = {"networks/cni-bridge-doctor": None}
    async with answering(tmp_path / "s", {"networks/create": {"Id": "n1"}, **removed}) as engine:
        assert await finds_driver(engine, "cni:latest")
