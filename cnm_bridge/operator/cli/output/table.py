# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Renders tables, with columns as wide as their content, and numbers of things. Pure."""

from collections.abc import Sequence
from typing import Final

from cni_bridge_spec import JsonObject, find_int

__all__ = ["SHORT", "changed_text", "count", "table"]

SHORT: Final = 12
"""The number of digits of an ID that Docker shows."""


def count(number: int, noun: str) -> str:
    """Return a number of things in words, e.g. `1 endpoint` or `2 endpoints`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with one line for the head and one for each row."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *rows)
    )


def changed_text(network: JsonObject) -> str:
    """Return that a network's configuration has changed since endpoints were made; empty if it has not.

    Args:
        network: The network, as in `spec/admin/status.json`.
    """
    outdated = find_int(network, "outdatedEndpoints") or 0
    return f"since {count(outdated, 'endpoint')} {'was' if outdated == 1 else 'were'} made" if outdated else ""
