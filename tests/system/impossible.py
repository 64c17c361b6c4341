# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tests of what an attach mode cannot do: in that mode they must fail for the given reason, and are counted as such.

`@pytest.mark.impossible(TEXT, *MODES, only=PART, besides=PARTS)`
    the error must have the text; `only` is a part of the test's name with its parameters, and tests whose names have
    one of the parts `besides` must pass.
`@pytest.mark.addresses_in_docker`
    Docker must know the addresses. In mode *direct* it does not, so any error is right there.

In the other modes such a test must pass. pytest reports an expected failure as `xfailed`.
"""

from collections.abc import Sequence

import pytest

from cnm_bridge.core.settings import AttachOption

__all__ = ["judge"]


def judge(item: pytest.Item, call: pytest.CallInfo[None], report: pytest.TestReport) -> None:
    """Make the failure with the expected reason an expected one; fail a test that the mode can do after all."""
    reasons = _reasons(item)
    if not reasons or report.when == "teardown" or (call.excinfo is None and report.when != "call"):
        return
    if call.excinfo is None:
        report.outcome = "failed"
        report.longrepr = f"passed, although it should not be possible: {'; '.join(reasons)}"
        return
    found = next((reason for reason in reasons if reason in str(call.excinfo.value)), None)
    if found is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        report.outcome = "skipped"
        report.wasxfail = found or "Docker does not know the addresses"


def _reasons(item: pytest.Item) -> Sequence[str]:
    """Return the texts of which an error must have one in the attach mode of this run; none if the test must pass."""
    mode = item.config.getoption("--attach", None)
    reasons = [
        str(mark.args[0])
        for mark in item.iter_markers("impossible")
        if mode in mark.args[1:]
        and mark.kwargs.get("only", "") in item.name
        and not any(part in item.name for part in mark.kwargs.get("besides", ()))
    ]
    if mode == AttachOption.DIRECT and item.get_closest_marker("addresses_in_docker") is not None:
        reasons.append("")
    return reasons
