# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where plugins are found, and what is said if they are not."""

import os
from pathlib import Path

import pytest

from cni_invoker import InvalidParameter, PluginNotFound
from cni_invoker.execution.plugin_path import find_plugin


@pytest.fixture(name="dirs")
def make_dirs(tmp_path: Path) -> tuple[Path, Path]:
    """Two plugin directories."""
    dirs = (tmp_path / "one", tmp_path / "two")
    for directory in dirs:
        directory.mkdir()
    return dirs


def put(path: Path, mode: int = 0o755) -> Path:
    """Put a file there."""
    path.touch()
    path.chmod(mode)
    return path


def test_the_first_directory_that_has_it_wins(dirs: tuple[Path, Path]) -> None:
    """Directories are gone through in their order."""
    second = put(dirs[1] / "bridge")
    assert find_plugin("bridge", dirs) == second
    first = put(dirs[0] / "bridge")
    assert find_plugin("bridge", dirs) == first


def test_only_files_count(dirs: tuple[Path, Path]) -> None:
    """A directory or a FIFO of that name is passed over; a link to a file is a file."""
    (dirs[0] / "bridge").mkdir()
    os.mkfifo(dirs[0] / "ptp", 0o755)
    (dirs[1] / "bridge").symlink_to(put(dirs[1] / "real"))
    put(dirs[1] / "ptp")
    assert find_plugin("bridge", dirs) == dirs[1] / "bridge"
    assert find_plugin("ptp", dirs) == dirs[1] / "ptp"


def test_a_missing_plugin_says_where_it_was_looked_for(dirs: tuple[Path, Path]) -> None:
    """All directories are named."""
    with pytest.raises(PluginNotFound) as caught:
        find_plugin("absent", dirs)
    assert str(caught.value) == f'failed to find plugin "absent" in path [{dirs[0]}, {dirs[1]}]'
    assert (caught.value.plugin, caught.value.directories) == ("absent", dirs)


def test_a_file_that_is_not_executable_is_told(dirs: tuple[Path, Path]) -> None:
    """It is passed over if there is a better one, and named if there is none."""
    useless = put(dirs[0] / "bridge", 0o644)
    with pytest.raises(PluginNotFound, match=f"found but not executable: {useless}") as caught:
        find_plugin("bridge", dirs)
    assert caught.value.not_executable == (useless,)
    better = put(dirs[1] / "bridge")
    assert find_plugin("bridge", dirs) == better


@pytest.mark.parametrize("plugin_type", ["", "../one/bridge"])
def test_a_path_is_not_looked_for(dirs: tuple[Path, Path], plugin_type: str) -> None:
    """A type that leads out of the directories is refused."""
    put(dirs[0] / "bridge")
    with pytest.raises(InvalidParameter):
        find_plugin(plugin_type, dirs)


def test_no_directory_at_all() -> None:
    """Without plugin directories there are no plugins."""
    with pytest.raises(PluginNotFound):
        find_plugin("bridge", ())


def test_names_too_long_for_a_file_system_are_missing(dirs: tuple[Path, Path]) -> None:
    """What cannot be there is not there."""
    with pytest.raises(PluginNotFound):
        find_plugin("a" * 300, dirs)
