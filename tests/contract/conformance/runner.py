# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The type of the functions that run a case."""

from collections.abc import Awaitable, Callable

from tests.contract.conformance.case import Case
from tests.contract.conformance.scene import Scene

__all__ = ["Runner"]

Runner = Callable[[Case, Scene], Awaitable[None]]
"""Runs a case and asserts the expected outcome."""
