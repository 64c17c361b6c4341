# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lines of `cni-bridge events`. Pure."""

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.cli.output.table import SHORT

__all__ = ["event_line", "with_words"]


def with_words(event: JsonObject) -> JsonObject:
    """Return an event (`spec/admin/event.json`) for a reader: a deleted endpoint has the phase `deleted`, not null."""
    is_deleted = event["event"] == "endpoint.phase" and event.get("phase") is None
    return {**event, "phase": "deleted"} if is_deleted else event


def event_line(event: JsonObject) -> str:
    """Return an event as a line: time, name, and everything else that it has, with short IDs."""
    facts = {key: value for key, value in event.items() if key not in {"time", "event"} and value is not None}
    shown = (f"{key}={str(value)[:SHORT] if key.endswith('Id') else value}" for key, value in facts.items())
    return f"{str(event['time'])[11:23]}  {event['event']:<15}  {'  '.join(shown)}"
