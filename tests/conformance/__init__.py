# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a CNI runtime has to do, as data (`cases.yaml`), and a program that tests any: see docs/conformance.md."""

from tests.conformance.case import Case, Level, load_cases
from tests.conformance.driver import Driver
from tests.conformance.run import run_case

__all__ = ["Case", "Driver", "Level", "load_cases", "run_case"]
