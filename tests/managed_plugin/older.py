# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The managed plugin as it was at an earlier commit, for upgrades: that commit's code, with today's libraries."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.managed_plugin.managed import BUILT

__all__ = ["BEFORE_NAMES", "SAME_RECORDS", "build_older"]

BEFORE_NAMES: Final = "64d68f03be833b6d2874989139ba43c2c31403a7"
"""The last commit without names of a swarm's tasks. No release had its form of records, so there is no migration."""
SAME_RECORDS: Final = "the last commit that changed the schemas of records"
_SCHEMAS: Final = "spec/state"
_ROOT: Final = Path(__file__).parents[2]
_CONFIG: Final = "packaging/plugin/config.json"
_PACKAGES: Final = {
    "cnm_bridge": "cnm_bridge",
    "cni_invoker": "cni_invoker",
    "cni_bridge_spec": "spec",
    "cni_bridge_state": "state",
}
"""Name of each package that the daemon imports → its directory in the repository."""


def build_older(commit: str, directory: Path) -> Path:
    """Make the managed plugin of a commit, or of `SAME_RECORDS`, from the one that `make plugin` has made.

    It answers ConnectivityScope local, as the commits before names did, so its tasks have no names. The test is
    skipped if the repository has no such commit, as in a source archive; for `SAME_RECORDS` also in a shallow clone,
    where git takes the oldest commit for the one that made every file, and if it is today's own commit.

    Returns:
        Its directory.
    """
    archive, source, plugin = directory / "source.tar", directory / "source", directory / "plugin"
    if commit == SAME_RECORDS:
        commit = _find_same_records()
    _git("archive", "--output", str(archive), commit, _CONFIG, *_PACKAGES.values())
    source.mkdir()
    subprocess.run(("tar", "--extract", "--file", str(archive), "--directory", str(source)), check=True)
    subprocess.run(("cp", "--archive", "--link", str(BUILT), str(plugin)), check=True)
    (libraries,) = plugin.glob("rootfs/usr/lib/cni-bridge/lib/python3.*/site-packages")
    for name, place in _PACKAGES.items():
        shutil.rmtree(libraries / name)
        (source / place).rename(libraries / name)
    for answers in (libraries / "cnm_bridge/server").rglob("*.py"):
        answers.write_text(answers.read_text().replace('"ConnectivityScope": "global"', '"ConnectivityScope": "local"'))
    (plugin / "config.json").unlink()  # a link to today's
    (source / _CONFIG).rename(plugin / "config.json")
    return plugin


def _find_same_records() -> str:
    """Return the last commit that changed the schemas of records; skip the test if it is not an earlier one."""
    if _git("rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("the repository is shallow: it does not say which commit changed the schemas of records")
    found = _git("log", "-1", "--format=%H", "--", _SCHEMAS)
    if found == _git("rev-parse", "HEAD"):
        pytest.skip("today's own commit changed the schemas of records: none before it has the same")
    return found


def _git(*arguments: str) -> str:
    """Return what a git command prints; skip the test if there is no git, or it has not what is asked for."""
    try:
        done = subprocess.run(("git", "-C", str(_ROOT), *arguments), capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed, which has the code of earlier commits")
    if done.returncode != 0:
        pytest.skip(f"the code of an earlier commit is not here: {done.stderr.strip()}")
    return done.stdout.strip()
