# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Labs for the crash tests: each test has one of its own, in which it may kill everything."""

import os
from collections.abc import Iterator

import pytest

from tests.lab import Lab


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A lab without dockerd, for one test only."""
    if os.geteuid() != 0:
        pytest.skip("a lab, which makes namespaces and mounts, needs root")
    with Lab(dockerd=False) as lab:
        yield lab
