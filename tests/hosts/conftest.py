# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Labs with the managed plugin; see `tests/managed_plugin/conftest.py`."""

from tests.managed_plugin.conftest import engine

__all__ = ["engine"]
