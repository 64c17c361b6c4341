# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One lab with both sides in it, whose engine, plugins and attach mode are those of pytest's options."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from cnm_bridge.core.settings import AttachOption
from tests.alike.comparison import Comparison
from tests.alike.side import Ours, Theirs
from tests.lab import DAEMON_COMMAND, Engine, Lab, NoSuchEdition, find_engine, find_plugins
from tests.lab.editions import MAIN_ENGINE


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine of `--engine`, by default the one that most hosts have."""
    wanted: str | None = request.config.getoption("--engine")
    try:
        return find_engine(wanted or MAIN_ENGINE)
    except NoSuchEdition as exc:
        pytest.skip(f"not compared with Docker's own bridge: {exc}")


@pytest.fixture(scope="session")
def comparison(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Comparison]:
    """Both sides on a lab."""
    if os.geteuid() != 0:
        pytest.skip("a lab, which makes namespaces and mounts, needs root")
    attach = AttachOption(request.config.getoption("--attach"))
    wanted: str | None = request.config.getoption("--plugins")
    with ExitStack() as stack:
        lab = stack.enter_context(Lab(engine=engine, plugins=find_plugins(wanted) if wanted else None))
        lab.start_daemon(command=(*DAEMON_COMMAND, "--attach", attach))
        before = lab.state()
        with Theirs(lab).prepared() as theirs, Ours(lab).prepared() as ours:
            yield Comparison(theirs, ours, engine, attach)
        for path in lab.run("sh", "-c", "ls /etc/cni/net.d/ours-*").stdout.split():
            lab.remove(path)
        assert lab.wait_clean(before) == ""
