# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The parts of pyroute2 that the daemon does not use are imported only if something asks for them."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    """Run a program in a process of its own; return what it prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_a_daemon_does_not_import_them() -> None:
    """Neither its sockets nor its databases."""
    shown = run("import sys, cnm_bridge.daemon; print([name for name in sys.modules if name.startswith('pyroute2')])")
    assert "pyroute2.netlink.rtnl" in shown
    assert "pyroute2.ndb" not in shown


@pytest.mark.parametrize("use", ["from pyroute2 import NDB, IPRoute", "from pyroute2 import netns; netns.create"])
def test_others_can_use_them(use: str) -> None:
    """Names of the package, and its modules."""
    run(f"import cnm_bridge.system.kernel.netlink\n{use}")
