# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is wrong with a host, and the command that fixes it. Pure."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """Containers do not work, or not all of them."""
    WARNING = "warning"
    """They work now, and may not work later or in other circumstances."""
    NOTE = "note"
    """Something that an operator should know; it does not count as a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding.

    Attributes:
        severity: How much it matters.
        code: What kind of finding it is, the same in all versions, e.g. `forward-dropped`.
        subject: What it is about, e.g. `network blue`.
        text: What is wrong, and what follows from it.
        fix: The command that fixes it, as it is typed into a root shell; "" if no command does.
        advice: What else helps, in words: what has to be changed by hand, or another way; "" if there is nothing else.
    """

    severity: Severity
    code: str
    subject: str
    text: str
    fix: str = ""
    advice: str = ""


def error(code: str, subject: str, text: str, *, fix: str = "", advice: str = "") -> Finding:
    """Return a finding that keeps containers, or some of them, from working."""
    return Finding(severity=Severity.ERROR, code=code, subject=subject, text=text, fix=fix, advice=advice)


def warning(code: str, subject: str, text: str, *, fix: str = "", advice: str = "") -> Finding:
    """Return a finding that may do so later, or in other circumstances."""
    return Finding(severity=Severity.WARNING, code=code, subject=subject, text=text, fix=fix, advice=advice)


def note(code: str, subject: str, text: str, *, fix: str = "", advice: str = "") -> Finding:
    """Return a finding that is no fault."""
    return Finding(severity=Severity.NOTE, code=code, subject=subject, text=text, fix=fix, advice=advice)
