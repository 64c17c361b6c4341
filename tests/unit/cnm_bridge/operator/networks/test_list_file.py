# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The file of a list is written as a whole, and never replaces another one; what Docker is asked for."""

import os
import subprocess
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.engine_facts.engine import EngineVersion
from cnm_bridge.core.errors import Refused
from cnm_bridge.operator.networks import creation
from cnm_bridge.operator.networks.creation import PlannedNetwork, find_taken_paths, list_path, show_file, write_list
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


@pytest.mark.parametrize(
    ("major", "flags", "addressing"),
    [(27, "--ipam-driver null", {"IPAM": {"Driver": "null"}}), (28, "--ipv4=false", {"EnableIPv4": False})],
)
def test_the_flags_of_an_engine(major: int, flags: str, addressing: JsonObject) -> None:
    """The command and the request say the same."""
    request = PlannedNetwork(
        name="blue",
        driver="cni-bridge",
        options={"cni.network": "a b"},
        internal=False,
        version=EngineVersion(major, 0),
    )
    assert request.commands[0] == f"docker network create -d cni-bridge {flags} -o 'cni.network=a b' blue"
    assert request.body == {
        "Name": "blue",
        "Driver": "cni-bridge",
        "Options": {"cni.network": "a b"},
        "Internal": False,
        "CheckDuplicate": True,
        **addressing,
    }


def test_an_internal_network() -> None:
    """Both have the flag."""
    request = PlannedNetwork(name="blue", driver="cni-bridge", options={}, internal=True, version=EngineVersion(29, 0))
    assert request.commands[0] == "docker network create -d cni-bridge --ipv4=false --internal blue"
    assert request.body["Internal"] is True


def test_the_command_that_writes_a_file(tmp_path: Path) -> None:
    """A shell writes the same text, whatever the path is, also into a directory that is missing."""
    path, text = tmp_path / "not made" / "it's here.conflist", '{"name": "$HOME `id`"}\n'
    subprocess.run(["sh", "-c", show_file(path, text)], check=True)
    assert path.read_text("utf-8") == text
