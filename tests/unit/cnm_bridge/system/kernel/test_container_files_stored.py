# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What dockerd has stored about a container is found by the files that it mounts into it."""

from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.system.kernel.container_files import read_mounts, read_stored

ID: Final = "4f2a" * 16
NAME: Final = "config.v2.json"


@pytest.fixture(name="directory")
def make_directory(tmp_path: Path) -> Path:
    """The directory in which dockerd stores the container."""
    directory = tmp_path / "containers" / ID
    directory.mkdir(parents=True)
    return directory


def process(tmp_path: Path, *sources: Path) -> Path:
    """Return the directory of a process into whose namespace files are mounted, as in `/proc`."""
    own = next(
        mount
        for mount in reversed(read_mounts())
        if tmp_path.is_relative_to(mount.point) and Path(mount.point).stat().st_dev == tmp_path.stat().st_dev
    )
    roots = (own.root.rstrip("/") + str(source).removeprefix(own.point.rstrip("/")) for source in sources)
    found = tmp_path / "process"
    found.mkdir(exist_ok=True)
    lines = (f"9 8 {own.device} {root} /etc/{Path(root).name} rw - ext4 /dev/x rw\n" for root in roots)
    (found / "mountinfo").write_text("".join(lines))
    return found


@pytest.mark.parametrize("mounted", ["resolv.conf", "hostname", "hosts"])
def test_what_is_stored_about_a_container(tmp_path: Path, directory: Path, mounted: str) -> None:
    """One of dockerd's files is enough: the user may have mounted others in their places."""
    (directory / NAME).write_text('{"Name": "/web"}')
    home = process(tmp_path, tmp_path / "home" / mounted, directory / mounted)
    assert read_stored(home, ID, NAME) == {"Name": "/web"}
    assert read_stored(home, "5a" * 32, NAME) is None


@pytest.mark.parametrize("content", [None, "{", "[]", "endless"])
def test_what_cannot_be_read(tmp_path: Path, directory: Path, content: str | None) -> None:
    """It is not there, or is something else."""
    expected: JsonObject | None = None
    if content == "endless":
        (directory / NAME).symlink_to("/dev/zero")
    elif content is not None:
        (directory / NAME).write_text(content)
    assert read_stored(process(tmp_path, directory / "hosts"), ID, NAME) == expected


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    """There is no list of its mounts."""
    with pytest.raises(FileNotFoundError):
        read_stored(tmp_path / "none", ID, NAME)
