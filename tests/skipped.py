# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin of pytest: reports skipped tests to `tests/jobs`, which counts those of many runs."""

import os
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the reason of each skipped test to the file that `tests/jobs` counts."""
    reports: list[pytest.TestReport | pytest.CollectReport] = terminalreporter.stats.get("skipped", [])
    if not hasattr(terminalreporter.config, "workerinput"):  # what a worker skips, its controller reports
        report_not_tested(*map(_reason, reports))


def report_not_tested(*reasons: str) -> None:
    """Add reasons for tests that did not run to the file that `tests/jobs` counts, if it runs the tests."""
    path = os.environ.get("JOBS_SKIPPED")
    if path is not None:
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{reason}\n" for reason in reasons)


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(reason.removeprefix("Skipped: ").split())
