# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The conformance cases of `cni_cases.yaml`: a runner for each case, grouped by subject."""

from tests.contract.conformance.case import Case, load_cases
from tests.contract.conformance.divergences import DIVERGENCES, IMPROVED_ELSEWHERE
from tests.contract.conformance.runners import RUNNERS
from tests.contract.conformance.scene import Scene

__all__ = ["DIVERGENCES", "IMPROVED_ELSEWHERE", "RUNNERS", "Case", "Scene", "load_cases"]
