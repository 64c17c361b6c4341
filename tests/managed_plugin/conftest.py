# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Labs with the managed plugin that `make plugin` has made."""

from collections.abc import Iterator

import pytest

from tests.lab import Engine, Lab, find_engine, main_engine
from tests.managed_plugin.managed import BUILT


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The Docker engine of the labs."""
    assert (BUILT / "config.json").exists(), "there is no managed plugin in build/plugin: make plugin"
    requested: str | None = request.config.getoption("--engine", None)
    return find_engine(requested) if requested else main_engine()


@pytest.fixture
def lab(engine: Engine) -> Iterator[Lab]:
    """A Docker host on which nothing of cni-bridge is installed."""
    with Lab(engine=engine) as lab:
        yield lab
