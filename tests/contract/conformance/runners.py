# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""All runners, by case."""

from collections.abc import Mapping
from typing import Final

from tests.contract.conformance import (
    caching,
    chains,
    collecting,
    configuration,
    failures,
    naming,
    plugin_calls,
    requests,
    results,
    verbs,
    versions,
)
from tests.contract.conformance.runner import Runner

__all__ = ["RUNNERS"]

RUNNERS: Final[Mapping[str, Runner]] = {
    **configuration.RUNNERS,
    **versions.RUNNERS,
    **naming.RUNNERS,
    **requests.RUNNERS,
    **results.RUNNERS,
    **failures.RUNNERS,
    **chains.RUNNERS,
    **verbs.RUNNERS,
    **collecting.RUNNERS,
    **caching.RUNNERS,
    **plugin_calls.RUNNERS,
}
