# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A short soak on a few lists, with a fixed seed; `make soak` runs long ones, with other seeds."""

import os

import pytest

from tests.lab import Lab, main_engine
from tests.soak.generator import Generator
from tests.soak.lists import PUBLISHING
from tests.soak.machine import Machine
from tests.soak.operations import Kill, Kind
from tests.soak.soak import Soak
from tests.soak.trouble import Trouble, with_lists

SEED = 774
OPERATIONS = 34
TROUBLES = (Trouble.SLOW, Trouble.BURST, Trouble.STOP, Trouble.PARTNER, Trouble.UPDATE)
"""Those that take little time."""
LISTS = with_lists(("lan6", "wire", "again", "static", "house", "device"), TROUBLES)


@pytest.mark.timeout(600)  # less than a minute on a quiet machine
def test_a_short_soak() -> None:
    """After operations and kills the machine agrees with the model."""
    if os.geteuid() != 0:
        pytest.skip("a lab, which makes namespaces and mounts, needs root")
    log: list[str] = []
    with Lab(engine=main_engine()) as lab:
        generator = Generator(SEED, LISTS, PUBLISHING, 0.3, troubles=TROUBLES)
        figures = Soak(Machine(lab, LISTS), generator, log.append).run(OPERATIONS)
    report = "\n".join((*log, *figures.differences, str(figures)))
    assert not figures.differences, report
    assert figures.operations.total() >= OPERATIONS
    assert {Kill.DAEMON, Kill.DOCKERD, Kill.STOP_DAEMON} <= set(figures.kills), report
    assert figures.operations[Kind.UPDATE], report
