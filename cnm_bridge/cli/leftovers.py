# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tables of `cni-bridge gc`, `retry` and `release`. Pure."""

from collections.abc import Sequence
from typing import Final

from cni_bridge_spec import JsonObject, get_bool, get_objects, get_str
from cnm_bridge.cli.admin_client import DaemonError
from cnm_bridge.cli.exit_status import ExitStatus
from cnm_bridge.cli.output.shown import Shown, Table

__all__ = ["pick", "show_left"]

_TEARDOWNS: Final = (("PENDING TEARDOWN", "endpointId"), ("ATTEMPTS", "attempts"), ("LAST ERROR", "error"))
_LEFTOVERS: Final = (("LEFTOVER", "id"), ("NETWORK", "network"), ("CONTAINER ID", "containerId"), ("WHAT", "what"))


def show_left(document: JsonObject, *, is_compared: bool = False) -> tuple[Shown, ExitStatus]:
    """Return what is shown of `spec/admin/leftovers.json`, and the exit status.

    Args:
        document: The document.
        is_compared: Whether it is the result of a comparison, which needs the engine.
    """
    teardowns, leftovers = get_objects(document, "pendingTeardowns"), get_objects(document, "leftovers")
    parts: list[Table | str] = []
    if teardowns:
        parts.append(Table(columns=_TEARDOWNS, rows=teardowns))
    if leftovers:
        parts.append(Table(columns=_LEFTOVERS, rows=leftovers))
        parts.append(
            "A leftover may belong to another runtime. If it does not: cni-bridge release "
            + " ".join(get_str(one, "id") for one in leftovers)
        )
    notes = []
    if is_compared and not get_bool(document, "isEngineUp"):
        notes.append("the engine does not answer, so nothing was compared with it")
    if not get_bool(document, "isComplete"):
        notes.append("the comparison has not ended yet; run the command again later")
    shown = Shown(document=document, rows=leftovers, parts=parts or ["nothing is left"], notes=notes)
    return shown, ExitStatus.FINDINGS if teardowns or leftovers or notes else ExitStatus.FINE


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
