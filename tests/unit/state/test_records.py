# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Attach modes answer what the rest of the daemon asks about them."""

import pytest

from cni_bridge_state import AttachMode


@pytest.mark.parametrize(
    ("mode", "in_sandbox", "has_reservation", "docker_knows_addresses", "falls_back_to_move"),
    [
        (AttachMode.MOVE, False, False, True, False),
        (AttachMode.HYBRID, True, True, True, True),
        (AttachMode.DIRECT, True, False, False, False),
    ],
)
def test_what_a_mode_does(
    mode: AttachMode,
    *,
    in_sandbox: bool,
    has_reservation: bool,
    docker_knows_addresses: bool,
    falls_back_to_move: bool,
) -> None:
    """All answers of each mode."""
    assert mode.in_sandbox is in_sandbox
    assert mode.has_reservation is has_reservation
    assert mode.docker_knows_addresses is docker_knows_addresses
    assert mode.falls_back_to_move is falls_back_to_move
