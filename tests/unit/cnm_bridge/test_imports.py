# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is imported when the daemon or another command starts."""

import subprocess
import sys

import pytest


def run(code: str) -> str:
    """Run a program in a process of its own; return what it prints."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


def test_importing_the_daemon_loads_no_library_for_invalid_documents() -> None:
    """The first invalid document loads it; neither are the sockets and databases of pyroute2 loaded."""
    shown = run("import sys, cnm_bridge.daemon; print(*sys.modules)").split()
    assert "pyroute2.netlink.rtnl" in shown
    assert {"jsonschema", "pyroute2.ndb"}.isdisjoint(shown)


@pytest.mark.parametrize("use", ["from pyroute2 import NDB, IPRoute", "from pyroute2 import netns; netns.create"])
def test_others_can_use_pyroute2(use: str) -> None:
    """Names of the package, and its modules."""
    run(f"import cnm_bridge.system.kernel.netlink\n{use}")


def test_nothing_is_loaded_for_other_commands_before_the_socket_is_open() -> None:
    """The command line is imported first, and Docker cannot connect before."""
    imported = "import sys, cnm_bridge.operator.cli.main, cnm_bridge.operator.cli.commands.serve"
    assert {"asyncio", "http", "email", "ssl"}.isdisjoint(run(f"{imported}; print(*sys.modules)").split())
