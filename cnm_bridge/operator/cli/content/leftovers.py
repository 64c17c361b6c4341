# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tables of `cni-bridge gc`, `retry` and `release`. Pure but for the age."""

from collections.abc import Sequence
from typing import Final

from cni_bridge_spec import JsonObject, find_int, get_bool, get_objects, get_str
from cnm_bridge.operator.cli.admin_client import DaemonError
from cnm_bridge.operator.cli.content.listing import age
from cnm_bridge.operator.cli.exit_status import ExitStatus
from cnm_bridge.operator.cli.output.shown import Shown, Table
from cnm_bridge.operator.cli.output.table import SHORT

__all__ = ["describe", "pick", "pick_failed", "show_left"]

_TEARDOWNS: Final = (("PENDING TEARDOWN", "endpointId"), ("ATTEMPTS", "attempts"), ("LAST ERROR", "error"))
_LEFTOVERS: Final = (
    *(("LEFTOVER", "id"), ("NETWORK", "network"), ("CONTAINER ID", "containerId"), ("AGE", "age"), ("WHAT", "what")),
)
_EXAMINED: Final = (
    "Examined: no endpoint of cni-bridge and no entry in libcni's cache (/var/lib/cni/results, "
    "/var/lib/cni/cache/results) has the container.\n"
    "Not examined: runtimes that do not use that cache. `release` keeps an address that a network namespace has.\n"
    "If no other runtime has the container: cni-bridge release "
)


def show_left(
    document: JsonObject, *, is_compared: bool = False, removed: Sequence[str] = ()
) -> tuple[Shown, ExitStatus]:
    """Return what is shown of `spec/admin/leftovers.json`, and the exit status.

    Args:
        document: The document.
        is_compared: Whether it is the result of a comparison, which needs the engine.
        removed: What has just been removed.
    """
    teardowns, leftovers = get_objects(document, "pendingTeardowns"), get_objects(document, "leftovers")
    parts: list[Table | str] = ["\n".join(f"removed {what}" for what in removed)] if removed else []
    if teardowns:
        parts.append(Table(columns=_TEARDOWNS, rows=teardowns))
    if leftovers:
        aged: list[JsonObject] = [{**one, "age": _age(one)} for one in leftovers]
        parts.append(Table(columns=_LEFTOVERS, rows=aged))
        parts.append(_EXAMINED + " ".join(get_str(one, "id") for one in leftovers))
    if not teardowns and not leftovers:
        parts.append("nothing is left")
    notes = []
    if is_compared and not get_bool(document, "isEngineUp"):
        notes.append("the engine does not answer, so nothing was compared with it")
    if not get_bool(document, "isComplete"):
        notes.append("the comparison has not ended yet; run the command again later")
    shown = Shown(document=document, rows=leftovers, parts=parts, notes=notes)
    return shown, ExitStatus.FINDINGS if teardowns or leftovers or notes else ExitStatus.FINE


def describe(leftover: JsonObject) -> str:
    """Return a leftover in words, e.g. `/var/lib/cni/networks/lan/10.1.2.3 (reservation)`."""
    what = get_str(leftover, "what")
    if what.startswith("/"):
        return f"{what} (reservation)"
    return f"{what} ({'chain' if ' -N ' in what else 'rule'})"


def pick_failed(status: JsonObject, prefixes: Sequence[str]) -> Sequence[str]:
    """Return the IDs of endpoints with a failed teardown that begin with the given texts, as `pick` does.

    Raises:
        DaemonError: As `pick`; it names an endpoint that exists and has no failed teardown.
    """
    failed = {get_str(one, "endpointId") for one in get_objects(status, "pendingTeardowns")}
    endpoints = [get_str(one, "id") for one in get_objects(status, "endpoints")]
    for prefix in prefixes:
        fine = [one for one in endpoints if one.startswith(prefix) and one not in failed]
        if fine and not any(one.startswith(prefix) for one in failed):
            raise DaemonError(
                f"endpoint {fine[0][:SHORT]} has no failed teardown; nothing has been changed", ExitStatus.USAGE
            )
    return pick(status, "pendingTeardowns", "endpointId", prefixes)


def _age(leftover: JsonObject) -> str | None:
    modified_at = find_int(leftover, "modifiedAt")
    return None if modified_at is None else age(modified_at)


def pick(document: JsonObject, key: str, name: str, prefixes: Sequence[str]) -> Sequence[str]:
    """Return the IDs in a list of a document that begin with the given texts, each exactly once.

    Raises:
        DaemonError: A text is the beginning of no ID, or of several.
    """
    ids = [get_str(one, name) for one in get_objects(document, key)]
    found: dict[str, None] = {}
    for prefix in prefixes:
        matching = [one for one in ids if one.startswith(prefix)]
        if len(matching) != 1:
            known = f"known are {', '.join(one[:12] for one in ids)}" if ids else "there are none"
            what = "ambiguous" if matching else "unknown"
            raise DaemonError(f"{prefix} is {what}: {known}; nothing has been changed", ExitStatus.USAGE)
        found[matching[0]] = None
    return tuple(found)
