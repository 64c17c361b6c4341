# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The namespaces of kernel tests; see `tests/kernel/conftest.py`."""

from tests.kernel.conftest import nothing_left_in_network, private_namespaces, sandbox

__all__ = ["nothing_left_in_network", "private_namespaces", "sandbox"]
