# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A report on a terminal shows what can be typed apart from what cannot."""

from dataclasses import replace

import pytest

from cnm_bridge.operator.doctor.facts import Finding, Severity
from cnm_bridge.operator.doctor.report import Report
from tests.unit.cnm_bridge.operator.doctor.host import HEALTHY


@pytest.mark.parametrize(
    ("fix", "advice", "lines"),
    [
        ("modprobe vrf", "", ["    fix: modprobe vrf"]),
        ("modprobe vrf", "another kernel", ["    fix: modprobe vrf", "    or: another kernel"]),
        ("", "install another kernel", ["    do: install another kernel"]),
    ],
)
def test_only_a_command_is_called_a_fix(fix: str, advice: str, lines: list[str]) -> None:
    """Words after `fix:` would be typed into a shell."""
    finding = Finding(severity=Severity.ERROR, code="x", subject="vrf", text="missing", fix=fix, advice=advice)
    report = replace(Report.of(HEALTHY), findings=(finding,))
    _, found = report.render_text().split("\n\n", 1)
    assert found.splitlines() == ["ERROR  vrf (x)", "    missing", *lines, "", "1 error"]
