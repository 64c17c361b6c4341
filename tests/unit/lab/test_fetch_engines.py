# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fetching engines and choosing one: a tree for each suite, or a clear error.

apt-get is a script here, and so are the programs in its packages.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab import LabError, NoSuchEdition, find_engine, known_engines, main_engine
from tests.lab.fetch_engines import main

# Packages of trixie are of version 26.1.5, those of sid of 28.5.2; containerd has versions of its own.
APT = r"""#!/bin/sh
case "$*" in
*indextargets*) echo http://mirror.example/debian/ ;;
*download*)
    case "$(cat suite.sources)" in
    *trixie*) version=26.1.5 ;;
    *"$MISSING"*) echo 'E: no such suite' >&2; exit 100 ;;
    *) version=28.5.2 ;;
    esac
    pack() {
        mkdir -p "$1/DEBIAN" "$1/$(dirname "$3")"
        printf '%s\n' "Package: $1" "Version: $2" 'Architecture: all' 'Maintainer: x' \
            'Description: x' >"$1/DEBIAN/control"
        printf '#!/bin/sh\necho "%s version %s+dfsg1, build 5d6db84"; %s\n' "$1" "$2" "$4" >"$1/$3"
        chmod 755 "$1/$3"
        dpkg-deb --build "$1" "$1_$2_all.deb"
    }
    pack docker.io $version usr/sbin/dockerd "$DOCKERD"
    pack docker-cli $version usr/bin/docker
    pack containerd 2.1 usr/bin/containerd ;;
esac
"""


@pytest.fixture(name="cache", autouse=True)
def make_cache(machine: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a machine whose apt-get is `APT`."""
    monkeypatch.setenv("MISSING", "nothing")
    monkeypatch.setenv("DOCKERD", "")
    return machine(APT) / "engines"


@pytest.mark.slow
def test_each_suite_gives_an_engine(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The packages of a suite are unpacked together, and chosen by the beginning of the version."""
    assert main([]) == 0
    output = capsys.readouterr().out
    assert f"docker.io version 26.1.5+dfsg1, build 5d6db84 (trixie): {cache}/26.1.5_2.1_" in output
    assert f"docker.io version 28.5.2+dfsg1, build 5d6db84 (sid): {cache}/28.5.2_2.1_" in output
    (tmp_path / "bin" / "apt-get").unlink()  # a second run needs no apt-get
    assert main([]) == 0
    found = [engine for engine in known_engines() if engine.directory is not None]
    assert [engine.version for engine in found] == [(26, 1, 5), (28, 5, 2)]
    assert main_engine() == found[1]
    for wanted in ("28", "28.5", "28.5.2"):
        engine = find_engine(wanted)
        assert engine.name == "28.5.2"
        assert engine.directory is not None
        assert engine.directory.is_relative_to(cache)
        assert engine.search_path == f"{engine.directory}/usr/sbin:{engine.directory}/usr/bin"
    for wanted in ("2", "28.5.1", "28.5.2.1", "sid", ""):
        with pytest.raises(NoSuchEdition, match=r"no Docker engine .* here, only .*26\.1\.5, 28\.5\.2; `python -m"):
            find_engine(wanted)


def test_an_unreachable_suite_does_not_prevent_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other suite is fetched, and the exit status is 1."""
    monkeypatch.setenv("MISSING", "sid")
    assert main([]) == 1
    output = capsys.readouterr()
    assert "(trixie)" in output.out
    assert "the engine of sid cannot be had: apt-get: exit status 100: E: no such suite" in output.err
    assert find_engine("26").name == "26.1.5"
    assert main_engine() == known_engines()[0]  # the main one is not there


def test_an_engine_that_does_not_run_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error has the message of the loader; if a fetched one stops running later, the error names its suite."""
    monkeypatch.setenv("DOCKERD", '[ -z "$OLD" ] || { echo "libc.so.6: version GLIBC_2.99 not found" >&2; exit 1; }')
    monkeypatch.setenv("OLD", "1")
    assert main(["--suite", "sid"]) == 1
    output = "sid cannot be had: dockerd: exit status 1: libc.so.6: version GLIBC_2.99 not found"
    assert output in capsys.readouterr().err
    assert list(cache.iterdir()) == []
    monkeypatch.delenv("OLD")
    assert main(["--suite", "sid"]) == 0
    monkeypatch.setenv("OLD", "1")
    with pytest.raises(LabError, match=r"the engine of sid that was fetched is unusable: dockerd: .*GLIBC_2\.99"):
        known_engines()
