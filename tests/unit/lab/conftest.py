# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A machine whose apt is a script and whose cache is empty."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

__all__ = ["machine"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that installs a script as apt-get, and returns the directory of the cache."""
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is missing, and the packages of these tests are made with it")

    def make(apt: str) -> Path:
        programs = tmp_path / "bin"
        programs.mkdir()
        (programs / "apt-get").write_text(apt)
        (programs / "apt-get").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
        monkeypatch.delenv("LAB_ENGINES_DIR", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        return tmp_path / "cache" / "cni-bridge"

    return make
