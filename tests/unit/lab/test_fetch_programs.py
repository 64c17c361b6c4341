# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fetching docker compose: a program that runs here, or a clear error. The apt-get here is a script."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.fetch_programs import FetchError, find_program, main

APT = r"""#!/bin/sh
case "$*" in
*indextargets*) echo http://mirror.example/debian/ ;;
*download*)
    plugins=package/usr/libexec/docker/cli-plugins
    mkdir -p package/DEBIAN $plugins
    printf '%s\n' 'Package: docker-compose' 'Version: 9.9' 'Architecture: all' 'Maintainer: x' \
        'Description: x' >package/DEBIAN/control
    printf '#!/bin/sh\n[ -z "$BROKEN" ] || { echo "no libc" >&2; exit 1; }\necho compose 9.9\n' >$plugins/docker-compose
    chmod 755 $plugins/docker-compose
    dpkg-deb --build package docker-compose_9.9_all.deb ;;
esac
"""


@pytest.fixture(name="cache")
def make_cache(machine: Callable[[str], Path]) -> Path:
    """An empty cache, and a machine whose apt-get is `APT`."""
    return machine(APT) / "compose"


def test_compose_is_fetched_once(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second call finds it in the cache, without apt-get."""
    assert find_program("compose") is None
    assert main(["compose"]) == 0
    found = find_program("compose")
    assert found is not None
    assert found.is_relative_to(cache)
    assert f"compose: {found}\n" in capsys.readouterr().out
    (tmp_path / "bin" / "apt-get").unlink()
    assert main(["compose"]) == 0


def test_a_compose_that_does_not_run_is_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If it stops running later, that is an error."""
    monkeypatch.setenv("BROKEN", "1")
    assert main(["compose"]) == 1
    assert "compose cannot be had: docker-compose: exit status 1: no libc" in capsys.readouterr().err
    assert list(cache.iterdir()) == []
    monkeypatch.delenv("BROKEN")
    assert main(["compose"]) == 0
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(FetchError, match="no libc"):
        find_program("compose")
