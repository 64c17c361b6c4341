# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is imported when the daemon or another command starts."""

import subprocess
import sys


def test_importing_the_daemon_loads_no_library_for_invalid_documents() -> None:
    """The first invalid document loads it."""
    code = "import sys, cnm_bridge.daemon; print('jsonschema' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_nothing_is_loaded_for_other_commands_before_the_socket_is_open() -> None:
    """The command line is imported first, and Docker cannot connect before."""
    code = (
        "import sys, cnm_bridge.operator.cli.main, cnm_bridge.operator.cli.commands.serve; "
        "print([name for name in ('asyncio', 'http', 'email', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
