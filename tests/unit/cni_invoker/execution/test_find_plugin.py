# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where plugins are found, and the error if they are not."""

import os
from pathlib import Path

import pytest

from cni_invoker.errors import InvalidParameter, PluginNotFound
from cni_invoker.execution.answer import find_plugin


@pytest.fixture(name="dirs")
def make_dirs(tmp_path: Path) -> tuple[Path, Path]:
    """Two plugin directories."""
    dirs = (tmp_path / "one", tmp_path / "two")
    for directory in dirs:
        directory.mkdir()
    return dirs


def create(path: Path, mode: int = 0o755) -> Path:
    """Create an empty file."""
    path.touch()
    path.chmod(mode)
    return path


def test_the_first_directory_wins(dirs: tuple[Path, Path]) -> None:
    """Directories are searched in order."""
    second = create(dirs[1] / "bridge")
    assert find_plugin("bridge", dirs) == second
    first = create(dirs[0] / "bridge")
    assert find_plugin("bridge", dirs) == first


def test_only_regular_files_are_found(dirs: tuple[Path, Path]) -> None:
    """A directory or a FIFO is skipped; a symlink to a file is found."""
    (dirs[0] / "bridge").mkdir()
    os.mkfifo(dirs[0] / "ptp", 0o755)
    (dirs[1] / "bridge").symlink_to(create(dirs[1] / "real"))
    create(dirs[1] / "ptp")
    assert find_plugin("bridge", dirs) == dirs[1] / "bridge"
    assert find_plugin("ptp", dirs) == dirs[1] / "ptp"


def test_a_missing_plugin_is_an_error(dirs: tuple[Path, Path]) -> None:
    """The error names all directories searched."""
    with pytest.raises(PluginNotFound) as caught:
        find_plugin("absent", dirs)
    assert str(caught.value) == f'failed to find plugin "absent" in path [{dirs[0]}, {dirs[1]}]'
    assert caught.value.plugin == "absent"


def test_a_file_that_is_not_executable_is_skipped(dirs: tuple[Path, Path]) -> None:
    """It is named in the error if there is no executable one."""
    useless = create(dirs[0] / "bridge", 0o644)
    with pytest.raises(PluginNotFound, match=f"found but not executable: {useless}") as caught:
        find_plugin("bridge", dirs)
    assert caught.value.not_executable == (useless,)
    better = create(dirs[1] / "bridge")
    assert find_plugin("bridge", dirs) == better


@pytest.mark.parametrize("plugin_type", ["", "../one/bridge"])
def test_a_plugin_type_that_is_a_path_is_rejected(dirs: tuple[Path, Path], plugin_type: str) -> None:
    """An empty type, or one that leads out of the directories, is InvalidParameter."""
    create(dirs[0] / "bridge")
    with pytest.raises(InvalidParameter):
        find_plugin(plugin_type, dirs)


def test_a_name_too_long_for_a_file_is_not_found(dirs: tuple[Path, Path]) -> None:
    """The kernel's ENAMETOOLONG means that the plugin is missing."""
    with pytest.raises(PluginNotFound):
        find_plugin("a" * 300, dirs)
