# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lines of `cni-bridge events`."""

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.cli.commands.events import event_line, with_words
from cnm_bridge.operator.cli.output.template import Template

GONE: JsonObject = {
    "time": "2026-01-02T03:04:05.678+00:00",
    "event": "endpoint.phase",
    "endpointId": "77" * 32,
    "networkId": "6f" * 32,
    "phase": None,
}


def test_the_last_phase_is_deleted() -> None:
    """In lines and in templates; the document has null."""
    shown = with_words(GONE)
    line = event_line(shown)
    assert line == "03:04:05.678  endpoint.phase   endpointId=777777777777  networkId=6f6f6f6f6f6f  phase=deleted"
    assert Template("phase={{.Phase}}").render(shown) == "phase=deleted"


def test_other_events_are_unchanged() -> None:
    """One without a phase gets none."""
    for event in ({**GONE, "phase": "joined"}, {"time": "", "event": "plugin.executed", "plugin": "bridge"}):
        assert with_words(event) == event
