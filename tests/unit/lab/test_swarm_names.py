# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tests of a swarm wait while its tasks come and go."""

import subprocess
from ipaddress import ip_interface
from types import SimpleNamespace
from typing import cast

import pytest

from tests.lab import Lab, LabError
from tests.managed_plugin.swarm import wait_found


class Node:
    """A node whose task has ended when its links are read first; swarm has started the next one then."""

    def __init__(self) -> None:
        self.looks = 0

    def docker(self, *_: str) -> str:
        """Return what `docker ps` and `docker inspect` show."""
        return "/web.1"

    def run(self, *_: str, check: bool) -> subprocess.CompletedProcess[str]:
        """Return what `nslookup` shows."""
        assert not check
        return subprocess.CompletedProcess((), 0, "Address: 10.22.0.2\n", "")

    def container(self, _: str) -> SimpleNamespace:
        """Return the task."""
        return SimpleNamespace(link=self._link)

    def _link(self, _: str) -> SimpleNamespace:
        self.looks += 1
        if self.looks == 1:
            raise LabError("container web.1 does not run")
        return SimpleNamespace(addresses=[ip_interface("10.22.0.2/24")])


def test_a_task_that_ends_while_it_is_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end is no error: the next look finds the task that swarm has started instead."""
    monkeypatch.setattr("tests.lab.waiting.time.sleep", lambda _: None)
    node = Node()
    wait_found([cast("Lab", node)], "web")
    assert node.looks == 2
