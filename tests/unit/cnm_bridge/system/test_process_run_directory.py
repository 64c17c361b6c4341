# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A run directory belongs to one daemon at a time."""

from pathlib import Path

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.system.process import locked_run_directory


def test_a_run_directory_that_is_in_use(tmp_path: Path) -> None:
    """It is refused, with the option that helps, until it is free again."""
    directory = tmp_path / "run"
    with locked_run_directory(directory):
        with (
            pytest.raises(Refused, match=r"is used by another cni-bridge.* --run-dir"),
            locked_run_directory(directory),
        ):
            pass
        assert directory.stat().st_mode & 0o777 == 0o700
    with locked_run_directory(directory):
        pass
