# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The library's wheel stays small; `make test-install` installs it."""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


def test_the_wheel_of_the_library_is_small(tmp_path: Path) -> None:
    """It has at most 150 kB."""
    source = tmp_path / "source"
    shutil.copytree(
        ROOT / "packaging/cni-invoker", source, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
    )
    subprocess.run([sys.executable, "-c", BUILD, tmp_path], cwd=source, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= 150_000
