# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The mounts that a process sees, whatever their paths are called."""

from pathlib import Path

import pytest

from cnm_bridge.system.kernel.container_files import Mount, read_mounts

DOCKERS = b"36 35 98:0 /containers/hosts /etc/hosts rw,noatime shared:1 - ext3 /dev/root rw\n"


def read(tmp_path: Path, mountinfo: bytes) -> list[Mount]:
    """Return the mounts in a file like `/proc/<pid>/mountinfo`."""
    (tmp_path / "mountinfo").write_bytes(mountinfo)
    return [*read_mounts(tmp_path)]


def test_the_mounts(tmp_path: Path) -> None:
    """Each has an ID, a device, what it shows of that, and where it is; escapes are undone."""
    lines = DOCKERS + rb"37 35 0:5 / /a\040b\134 rw - tmpfs tmpfs rw" + b"\n"
    assert read(tmp_path, lines) == [
        Mount(id="36", device="98:0", root="/containers/hosts", point="/etc/hosts"),
        Mount(id="37", device="0:5", root="/", point="/a b\\"),
    ]


@pytest.mark.parametrize("name", [b"a\rb\rc", b"a\x0b98:0\x0c/root", "a\u2028b\xa0c".encode(), b"\xff\xfe"])
def test_a_mount_of_a_stranger(tmp_path: Path, name: bytes) -> None:
    """Its path has any characters; it is one mount, and the others are found."""
    own, dockers = read(tmp_path, b"9 1 0:50 / /home/" + name + b" rw - fuse.x x rw\n" + DOCKERS)
    assert (own.id, own.device, own.root) == ("9", "0:50", "/")
    assert bytes(Path(own.point)) == b"/home/" + name
    assert dockers.point == "/etc/hosts"


def test_a_process_that_has_ended(tmp_path: Path) -> None:
    """There is no list of its mounts."""
    with pytest.raises(FileNotFoundError):
        read_mounts(tmp_path / "none")
