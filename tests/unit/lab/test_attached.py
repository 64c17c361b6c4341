# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The system tests count in which mode endpoints were attached."""

from tests.system.attached import describe, has_moved_too_many, read_attached

LOG = """{"event": "endpoint.created", "mode": "sandbox", "endpoint_id": "a"}
{"event": "endpoint.created", "mode": "sandbox", "endpoint_id": "b"}
{"event": "endpoint.created", "mode": "sandbox", "endpoint_id": "c"}
a plugin printed "endpoint.torn_down"
{"event": "endpoint.created", "mode": "sandbox", "endpoint_id": "d"}
{"event": "endpoint.moved_instead", "reason": "the first process in the sandbox is not known", "endpoint_id": "b"}
{"event": "endpoint.moved_instead", "reason": "the container has further networks", "endpoint_id": "d"}
"""


def test_an_endpoint_that_is_moved_instead_counts_as_moved() -> None:
    """The mode at Join counts, not the one at CreateEndpoint."""
    found = read_attached(LOG)
    assert found.modes == {"sandbox": 2, "move": 2}


def test_a_container_on_several_networks_is_no_doubt() -> None:
    """Doubtful is what the daemon could not find out: such a move may be a fault of the test."""
    assert read_attached(LOG).doubts == ["the first process in the sandbox is not known"]


def test_a_run_that_moved_too_many_links() -> None:
    """A few endpoints say nothing."""
    assert has_moved_too_many({"sandbox": 30, "move": 70})
    assert not has_moved_too_many({"sandbox": 60, "move": 40})
    assert not has_moved_too_many({"move": 40})


def test_the_line_of_a_run() -> None:
    """It has the modes in alphabetical order."""
    assert describe({"move": 1, "sandbox": 30}) == "endpoints by attach mode: move 1, sandbox 30"
    assert describe({}) == "endpoints by attach mode: none"
