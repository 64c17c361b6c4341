# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The file of a list is written as a whole, and never replaces another one."""

import os
from pathlib import Path

import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.networks import creation
from cnm_bridge.operator.networks.creation import find_taken_paths, list_path, write_list
from cnm_bridge.operator.networks.wanted import parse_wanted


def test_a_new_list(tmp_path: Path) -> None:
    """Its directory is made; every user may read it, whatever the umask is."""
    former = os.umask(0o077)
    try:
        write_list(list_path(tmp_path / "net.d", "blue"), "{}\n")
    finally:
        os.umask(former)
    (file,) = (tmp_path / "net.d").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("blue.conflist", 0o644)
    assert file.read_text("utf-8") == "{}\n"


def test_an_existing_file_stays(tmp_path: Path) -> None:
    """One that was made since the plan is not replaced, and nothing else is left."""
    file = list_path(tmp_path, "blue")
    file.write_text("mine", "utf-8")
    with pytest.raises(Refused, match=r"cannot write .*blue\.conflist: File exists; nothing was changed"):
        write_list(file, "{}\n")
    assert [(one.name, one.read_text("utf-8")) for one in tmp_path.iterdir()] == [("blue.conflist", "mine")]


def test_a_directory_that_is_none(tmp_path: Path) -> None:
    """The error has the path and the reason."""
    (tmp_path / "net.d").write_text("", "utf-8")
    with pytest.raises(Refused, match=r"cannot write .*net\.d/blue\.conflist"):
        write_list(list_path(tmp_path / "net.d", "blue"), "{}\n")


def test_paths_that_are_taken(tmp_path: Path) -> None:
    """A dangling link is a file; a folder counts if plugins in it would be added to the list."""
    file = list_path(tmp_path, "a.b")
    assert find_taken_paths(file) == frozenset()
    file.symlink_to(tmp_path / "missing")
    (tmp_path / "a.b").mkdir()
    assert find_taken_paths(file) == {file}
    (tmp_path / "a.b" / "10-more.conf").write_text("{}", "utf-8")
    assert find_taken_paths(file) == {file, tmp_path / "a.b"}


def test_the_first_file_of_a_kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pods would get the list: a note says so, on hosts where a kubelet is."""
    (tmp_path / "net.d").mkdir()
    (tmp_path / "net.d/cilium.conflist").write_text("{}", "utf-8")
    wanted = parse_wanted("blue", subnets=["10.22.0.0/16"])
    file = list_path(tmp_path / "net.d", "blue")
    monkeypatch.setattr(creation, "_KUBELET", tmp_path / "kubelet")
    assert [*creation._notes(wanted, file)] == []
    (tmp_path / "kubelet").mkdir()
    assert [*creation._notes(wanted, file)] == [
        f"blue.conflist comes first in {tmp_path}/net.d, and a kubelet's runtime takes the first file"
    ]
    assert [*creation._notes(wanted, list_path(tmp_path / "net.d", "red"))] == []
