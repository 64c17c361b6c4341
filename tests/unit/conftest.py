# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A store for the tests of the daemon and of its state."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_state.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()
