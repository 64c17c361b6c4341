# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The scripts of the packages, and the units of a further instance."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parents[2] / "packaging/debian"
DAEMON = """#!/bin/sh
# No daemon runs. The state of a directory is the file `leveldb/exported` in it.
[ "$1" = state ] && exec cat "$4/leveldb/exported"
exit 1
"""
MANAGED = ("cni-bridge-plugin", "cni-bridge-global")
"""The states of managed plugins, of local and of global scope (`server/managed_plugin.py`)."""
WANTED = "etc/systemd/system/multi-user.target.wants"


@pytest.fixture(name="root")
def make_root(tmp_path: Path) -> Path:
    """A root directory with the package, its instance `blue`, and managed plugins with settings of their own."""
    for name in ("config", "blue", "plugin", "global"):
        _write(tmp_path / f"etc/cni-bridge/{name}.toml", "")
    for name in ("cni-bridge", "cni-bridge-blue", *MANAGED, "cni-bridge-other"):
        add_state(tmp_path, name)
    home = tmp_path / "usr/lib/cni-bridge"
    _write(home / "in-use", (SCRIPTS / "in-use").read_text("utf-8"))
    _write(home / "bin/cni-bridge", DAEMON)
    (home / "bin/cni-bridge").chmod(0o755)
    (home / "bin/python3").symlink_to(sys.executable)
    return tmp_path


def test_a_purge_deletes_the_states_of_the_packages_own_units(root: Path) -> None:
    """The first daemon's state goes, and that of each instance; those of managed plugins and unknown daemons stay."""
    done = purge(root)
    assert (done.returncode, done.stderr) == (0, "")
    assert {path.name for path in (root / "var/lib").iterdir()} == {*MANAGED, "cni-bridge-other"}
    assert {path.name for path in (root / "run").iterdir()} == {*MANAGED, "cni-bridge-other"}
    assert not (root / "etc/cni-bridge").exists()


def test_a_purge_without_settings_and_state_has_nothing_to_delete(tmp_path: Path) -> None:
    """A package that was never started is purged."""
    assert purge(tmp_path).returncode == 0


@pytest.mark.parametrize("name", ["cni-bridge", "cni-bridge-blue"])
def test_a_purge_empties_a_mount_point(root: Path, name: str) -> None:
    """A state directory that is a file system of its own is emptied; the purge says that it stays, and succeeds."""
    mounted = root / "var/lib" / name
    script = (
        f'mount -t tmpfs state "{mounted}" && mkdir -p "{mounted}/leveldb" && sh -e "$0" purge && ls -A "{mounted}"'
    )
    if subprocess.run(("unshare", "--user", "--map-root-user", "--mount", "true"), check=False).returncode:
        pytest.skip("this user may not make user namespaces")
    done = run(root, "unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", script, "cni-bridge.postrm")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"remove what is left of {mounted}" in done.stderr
    assert not (root / "etc/cni-bridge").exists()


@pytest.mark.parametrize("name", ["cni-bridge", "cni-bridge-blue"])
def test_endpoints_of_the_packages_units_keep_it_installed(root: Path, name: str) -> None:
    """An endpoint of the first daemon or of an instance is found, and the status says so."""
    add_state(root, name, "4e0f")
    done = in_use(root)
    assert done.returncode == 1
    assert done.stdout == "  endpoint 4e0f on network 77aa, container ?\n"


@pytest.mark.parametrize(
    "document",
    [
        {"endpoints": [], "pools": [{"section": "lan", "addresses": 2}, {"section": "wan", "addresses": 0}]},
        {
            "endpoints": [],
            "pools": [{"section": "lan"}, {"section": "wan"}],
            "addresses": [{"section": "lan", "pool": "1"}, {"section": "lan", "pool": "1"}],
        },
    ],
    ids=["running daemon", "export"],
)
def test_addresses_of_other_drivers_keep_it_installed(root: Path, document: JsonObject) -> None:
    """Nothing else could release the reservations of networks whose IPAM driver the package has."""
    _write(root / "var/lib/cni-bridge/leveldb/exported", json.dumps(document))
    done = in_use(root)
    assert (done.returncode, done.stdout) == (1, "  2 addresses of IPAM section lan\n")


@pytest.mark.parametrize("name", [*MANAGED, "cni-bridge-other"])
def test_endpoints_of_other_daemons_do_not_keep_it_installed(root: Path, name: str) -> None:
    """The removal of the package harms no endpoint of a managed plugin, or of a daemon that was started by hand."""
    add_state(root, name, "4e0f")
    assert (in_use(root).returncode, in_use(root).stdout) == (0, "")


def test_an_enabled_instance_without_settings_counts(root: Path) -> None:
    """Also one called `plugin`: what its unit has made is this package's."""
    add_state(root, "cni-bridge-plugin", "4e0f")
    (root / WANTED).mkdir(parents=True)
    (root / WANTED / "cni-bridge@plugin.service").symlink_to("/usr/lib/systemd/system/cni-bridge@.service")
    assert in_use(root).returncode == 1


@pytest.mark.parametrize("name", ["n", "e", "-n"])
def test_an_instance_with_the_name_of_an_option_counts(root: Path, name: str) -> None:
    """`echo -n` prints nothing: such an instance is found by its settings, and by its unit."""
    add_state(root, f"cni-bridge-{name}", "4e0f")
    settings = root / f"etc/cni-bridge/{name}.toml"
    _write(settings, "")
    assert in_use(root).returncode == 1
    settings.unlink()
    (root / WANTED).mkdir(parents=True)
    (root / WANTED / f"cni-bridge@{name}.service").symlink_to("/usr/lib/systemd/system/cni-bridge@.service")
    assert in_use(root).returncode == 1


def add_state(root: Path, name: str, *endpoints: str) -> None:
    """Write a state with these endpoints, and a run directory."""
    document = {"endpoints": [{"id": endpoint, "networkId": "77aa"} for endpoint in endpoints]}
    _write(root / f"var/lib/{name}/leveldb/exported", json.dumps(document))
    _write(root / f"run/{name}/daemon.lock", "")


def purge(root: Path) -> subprocess.CompletedProcess[str]:
    """Run what dpkg runs when the package is purged, after its files were removed."""
    return run(root, "sh", "cni-bridge.postrm", "purge")


def in_use(root: Path) -> subprocess.CompletedProcess[str]:
    """Run the package's search for endpoints."""
    return run(root, "sh", str(root / "usr/lib/cni-bridge/in-use"))


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the directory of the scripts, for a root directory and without Docker."""
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "DPKG_ROOT": str(root),
        "DOCKER_HOST": "unix:///nonexistent",
    }
    return subprocess.run(command, cwd=SCRIPTS, env=environment, capture_output=True, text=True, check=False)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


UNITS = Path(__file__).parents[2] / "docker/systemd"
NAMES = (
    ("cni-bridge-admin@%i.", "cni-bridge-admin."),
    ("cni-bridge@%i.", "cni-bridge."),
    ("/cni-bridge-%i", "/cni-bridge"),
    ("=cni-bridge-%i", "=cni-bridge"),
    ("/%i.sock", "/cni-bridge.sock"),
    (", instance %i", ""),
)
OPTIONS = (
    "--config /etc/cni-bridge/%i.toml --socket /run/docker/plugins/%i.sock --state-dir /var/lib/cni-bridge-%i "
    "--run-dir /run/cni-bridge-%i"
)


@pytest.mark.parametrize("name", ["cni-bridge.service", "cni-bridge.socket", "cni-bridge-admin.socket"])
def test_the_units_of_an_instance(name: str) -> None:
    """Each setting is the same; the service's command names the instance's own files."""
    stem, _, kind = name.rpartition(".")
    template = (UNITS / f"{stem}@.{kind}").read_text("utf-8")
    if kind == "service":
        assert template.count(f" serve {OPTIONS}\n") == 1
        template = template.replace(f" {OPTIONS}", "")
    for instance, first in NAMES:
        template = template.replace(instance, first)
    assert "%i" not in template
    assert _settings(template) == _settings((UNITS / name).read_text("utf-8"))


def test_a_plugin_is_killed_for_memory_before_the_daemon() -> None:
    """And then the daemon goes on, to undo what the plugin had begun."""
    settings = _settings((UNITS / "cni-bridge.service").read_text("utf-8"))
    assert {"OOMPolicy=continue", "OOMScoreAdjust=-500"} <= set(settings)


def _settings(unit: str) -> list[str]:
    return [line for line in unit.splitlines() if line and not line.startswith("#")]
