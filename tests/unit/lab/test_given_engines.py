# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Engines from archives: unpacked once, completed with Debian's newest engine, and reported if unusable."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import LabError, find_engine, known_engines
from tests.lab.fetch_engines import main

# An engine 28.5.2 in sid; no other suite has one.
APT = r"""#!/bin/sh
case "$*" in
*indextargets*) echo http://mirror.example/debian/ ;;
*download*)
    pack() {
        mkdir -p "$1/DEBIAN"
        printf '%s\n' "Package: $1" 'Version: 28.5.2' 'Architecture: all' 'Maintainer: x' 'Description: x' \
            >"$1/DEBIAN/control"
        for program in $2; do
            mkdir -p "$1/$(dirname "$program")"
            printf '#!/bin/sh\necho "%s version 28.5.2, build 5d6db84"\n' "$1" >"$1/$program"
            chmod 755 "$1/$program"
        done
        dpkg-deb --build "$1" "$1_28.5.2_all.deb"
    }
    pack docker.io 'usr/sbin/dockerd usr/sbin/docker-proxy'
    pack docker-cli usr/bin/docker
    pack containerd 'usr/bin/containerd usr/bin/containerd-shim-runc-v2' ;;
esac
"""


@pytest.fixture(name="cache", autouse=True)
def make_cache(machine: Callable[[str], Path]) -> Path:
    """An empty cache, and a machine whose apt-get is `APT`."""
    return machine(APT) / "engines"


@pytest.fixture(name="given")
def make_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of archives, which LAB_ENGINES_DIR names."""
    given = tmp_path / "given"
    given.mkdir()
    monkeypatch.setenv("LAB_ENGINES_DIR", str(given))
    return given


def write_archive(given: Path, **programs: str) -> Path:
    """Write an archive of an engine 29.7.2 with these scripts as its programs."""
    archive = given / "docker-29.7.2-amd64.tar.xz"
    with tarfile.open(archive, "w:xz") as content:
        for name, script in programs.items():
            data = f"#!/bin/sh\n{script}\n".encode()
            member = tarfile.TarInfo(f"docker-29.7.2/bin/{name}")
            member.size = len(data)
            content.addfile(member, io.BytesIO(data))
    return archive


def test_an_archive_gives_an_engine(cache: Path, given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its own programs come from the archive, the others from Debian's newest engine; the archive is not changed."""
    archive = write_archive(given, dockerd="echo Docker version 29.7.2, build x", runc="echo runc")
    assert main([]) == 0
    tree = cache / "docker-29.7.2-amd64"
    assert f"Docker version 29.7.2, build x ({archive}): {tree}" in capsys.readouterr().out
    engine = find_engine("29")
    assert (engine.name, engine.directory) == ("29.7.2", tree)
    assert [other.name for other in known_engines() if other.directory][-1] == "29.7.2"
    assert not (tree / "usr/bin/runc").is_symlink()
    for borrowed in (
        "usr/bin/docker",
        "usr/bin/containerd",
        "usr/bin/containerd-shim-runc-v2",
        "usr/sbin/docker-proxy",
    ):
        assert (tree / borrowed).resolve() == (cache / "sid" / borrowed).resolve()
    assert [path.name for path in given.iterdir()] == [archive.name]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("programs", "message"),
    [
        ({"dockerd": "echo Docker version 29.7.2"}, "has no bin/runc"),
        ({"dockerd": "echo GLIBC_2.99 not found >&2; exit 1", "runc": "exit 0"}, "dockerd: exit status 1: GLIBC_2.99"),
        ({}, "has no bin/dockerd and no bin/runc"),
    ],
)
def test_an_unusable_archive_is_reported(
    cache: Path, given: Path, capsys: pytest.CaptureFixture[str], programs: dict[str, str], message: str
) -> None:
    """The reason is given, nothing of the archive is kept, and the other engines can be used."""
    archive = write_archive(given, **programs)
    assert main([]) == 1
    errors = capsys.readouterr().err
    assert f"the engine of {archive} cannot be had" in errors
    assert message in errors
    assert not list(cache.glob("*29.7.2*"))
    assert find_engine("28").name == "28.5.2"


def test_a_file_that_is_no_archive_is_reported(given: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A damaged archive, or another file, cannot be unpacked."""
    archive = given / "docker-29.7.2-amd64.tar.xz"
    archive.write_bytes(b"nothing")
    assert main([]) == 1
    assert f"{archive} cannot be unpacked" in capsys.readouterr().err


def test_a_missing_archive_directory_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A mistake in LAB_ENGINES_DIR does not count as an empty directory."""
    monkeypatch.setenv("LAB_ENGINES_DIR", str(tmp_path / "nowhere"))
    with pytest.raises(LabError, match=r"LAB_ENGINES_DIR names .*nowhere, which is not a directory"):
        known_engines()
    assert main([]) == 1
    assert "which is not a directory" in capsys.readouterr().err
