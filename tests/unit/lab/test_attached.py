# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The system tests count in which mode endpoints were attached."""

from tests.system.attached import describe, read_attached

LOG = """{"event": "endpoint.created", "mode": "hybrid", "endpoint_id": "a"}
{"event": "endpoint.created", "mode": "hybrid", "endpoint_id": "b"}
{"event": "endpoint.created", "mode": "direct", "endpoint_id": "c"}
a plugin printed "endpoint.torn_down"
{"event": "endpoint.moved_instead", "reason": "further networks", "endpoint_id": "b"}
"""


def test_an_endpoint_that_is_moved_instead_counts_as_moved() -> None:
    """The mode at Join counts, not the one at CreateEndpoint."""
    found = read_attached(LOG)
    assert found.modes == {"hybrid": 1, "direct": 1, "move": 1}
    assert found.reasons == ["further networks"]


def test_the_line_of_a_run() -> None:
    """It has the modes in alphabetical order."""
    assert describe({"move": 1, "hybrid": 30}) == "endpoints by attach mode: hybrid 30, move 1"
    assert describe({}) == "endpoints by attach mode: none"
