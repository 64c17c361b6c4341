# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tables of `cni-bridge top`. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

from cni_bridge_spec import JsonObject, find_str, get_objects, get_str
from cnm_bridge.operator.cli.output.shown import Shown, Table

__all__ = ["show_figures"]

_COLUMNS: Final = (("COUNT", "count"), ("FAILED", "failed"), ("MEAN MS", "mean"), ("MAX MS", "max"))


def show_figures(status: JsonObject, events: Iterable[JsonObject]) -> Shown:
    """Return tables of calls and of executions, and the number of endpoints in each phase.

    Args:
        status: The daemon's status.
        events: The last events, `spec/admin/event.json`.
    """
    calls: dict[str, list[JsonObject]] = {}
    executions: dict[str, list[JsonObject]] = {}
    for event in events:
        match get_str(event, "event"):
            case "rpc.answered" | "rpc.refused":
                calls.setdefault(get_str(event, "rpc").partition(".")[2], []).append(event)
            case "plugin.executed":
                executions.setdefault(f"{get_str(event, 'plugin')} {get_str(event, 'verb')}", []).append(event)
    phases = Counter(get_str(one, "phase") for one in get_objects(status, "endpoints"))
    tables = {"CALL": _rows(calls), "PLUGIN": _rows(executions)}
    pending = len(get_objects(status, "pendingTeardowns"))
    summary = ", ".join(f"{count} {phase}" for phase, count in sorted(phases.items())) or "none"
    return Shown(
        document={"calls": tables["CALL"], "executions": tables["PLUGIN"], "phases": dict(phases)},
        rows=[*tables["CALL"], *tables["PLUGIN"]],
        parts=[
            f"endpoints: {summary}; failed teardowns: {pending}",
            *(Table(columns=((title, "name"), *_COLUMNS), rows=rows) for title, rows in tables.items() if rows),
        ],
    )


def _rows(events: Mapping[str, list[JsonObject]]) -> list[JsonObject]:
    rows: list[JsonObject] = []
    for name, found in sorted(events.items(), key=lambda item: -len(item[1])):
        durations = [float(str(event["durationMs"])) for event in found]
        failed = sum(
            find_str(event, "error") is not None or event.get("outcome", "success") != "success" for event in found
        )
        mean = round(sum(durations) / len(durations), 1)
        rows.append({"name": name, "count": len(found), "failed": failed, "mean": mean, "max": max(durations)})
    return rows
