# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The engine and the guard of the system tests; see `tests/system/conftest.py`."""

from tests.system.conftest import attach, cleanup_limit_s, engine, guard

__all__ = ["attach", "cleanup_limit_s", "engine", "guard"]
