# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Fetching plugins into the cache and nowhere else, or a clear error. The apt-get here is a script."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.fetch_plugins import FetchError, fetch_plugins, find_fetched_plugins, main

APT = """#!/bin/sh
case "$*" in
*indextargets*) echo http://mirror.example/debian/ ;;
*update*) cat suite.sources >"$SEEN" ;;
*download*)
    mkdir -p package/DEBIAN package/usr/lib/cni
    printf '%s\\n' 'Package: containernetworking-plugins' 'Version: 9.9' 'Architecture: all' 'Maintainer: x' \\
        'Description: x' >package/DEBIAN/control
    printf '#!/bin/sh\\necho %s\\n' "'$ANSWER'" >package/usr/lib/cni/bridge
    chmod 755 package/usr/lib/cni/bridge
    dpkg-deb --build package containernetworking-plugins_9.9_all.deb ;;
esac
"""


@pytest.fixture(name="cache")
def make_cache(machine: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a machine whose apt-get is `APT`."""
    monkeypatch.setenv("SEEN", str(tmp_path / "seen"))
    monkeypatch.setenv("ANSWER", '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0", "1.1.0"]}')
    return machine(APT) / "plugins"


def test_plugins_are_fetched_once(cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The package of the suite comes from the machine's own mirror; the second call needs no apt-get."""
    assert find_fetched_plugins() is None
    assert main([]) == 0
    assert "URIs: http://mirror.example/debian/\nSuites: sid\n" in (tmp_path / "seen").read_text()
    found = find_fetched_plugins()
    assert found is not None
    assert (found.version, found.cni_versions) == ("9.9", ("1.0.0", "1.1.0"))
    assert found.directory.is_relative_to(cache)
    assert f"containernetworking-plugins 9.9 (CNI up to 1.1.0): {found.directory}\n" in capsys.readouterr().out
    (tmp_path / "bin" / "apt-get").unlink()
    assert main([]) == 0
    assert sorted(path.name.partition("_")[0] for path in cache.iterdir()) == ["9.9", "sid"]


def test_plugins_cannot_be_fetched_without_a_mirror(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error says that apt knows no mirror, or what apt-get printed."""
    apt = tmp_path / "bin" / "apt-get"
    apt.write_text("#!/bin/sh\n")
    assert main([]) == 1
    assert "apt knows no Debian mirror here" in capsys.readouterr().err
    apt.write_text("#!/bin/sh\necho 'E: no network' >&2\nexit 100\n")
    assert main([]) == 1
    assert "apt-get: exit status 100: E: no network" in capsys.readouterr().err
    assert not cache.exists()


def test_a_failed_fetch_keeps_the_previous_plugins(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that do not run here do not replace those that do."""
    fetch_plugins()
    before = find_fetched_plugins()
    monkeypatch.setenv("ANSWER", "no versions")
    with pytest.raises(FetchError, match="does not tell its versions"):
        fetch_plugins()
    assert find_fetched_plugins() == before
    assert sorted(path.name.partition("_")[0] for path in cache.iterdir()) == ["9.9", "sid"]
