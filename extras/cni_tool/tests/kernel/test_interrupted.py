# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No lost DEL: `extras/cni_tool/tests/interrupted`, in short."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_no_del_is_lost() -> None:
    """After each of 100 runs with SIGKILL and faults everything is recorded or gone; `make interrupted` plays more."""
    command = (sys.executable, "-m", "extras.cni_tool.tests.interrupted", "--runs", "100", "--seed", "2026")
    played = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    assert played.stdout.count(": killed\n") == 6  # with each fault, and without any
