# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""pytest-cni on plugins of several kinds: what conforms passes, and a report names the clause and quotes the plugin."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject

ROOT = Path(__file__).parents[4]
KIT = Path(__file__).parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{KIT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""The plugin is loaded once, by `-p`, also where a build has left its entry point."""
PLUGINS = Path("/usr/lib/cni")
SHELL = """#!/bin/sh
# A plugin in a shell script: a link without addresses.
input=$(cat)
version=$(printf %s "$input" | tr -d ' \\n' | sed -n 's/.*"cniVersion":"\\([^"]*\\)".*/\\1/p')
fail() {
    printf '{"cniVersion": "%s", "code": %s, "msg": "%s"}' "$version" "$1" "$2"
    exit 1
}
if [ "$CNI_COMMAND" = VERSION ]; then
    echo '{"cniVersion": "1.0.0", "supportedVersions": ["0.4.0", "1.0.0"]}'
    exit
fi
[ -n "$version" ] || fail 6 "the input is not JSON"
case "$version" in 0.4.0 | 1.0.0) ;; *) fail 1 "version $version" ;; esac
inside() { nsenter --net="$CNI_NETNS" ip "$@"; }
case "$CNI_COMMAND" in
ADD)
    for name in CNI_CONTAINERID CNI_IFNAME CNI_NETNS; do
        eval "[ -n \\"\\$$name\\" ]" || fail 4 "$name is missing"
    done
    inside link add "$CNI_IFNAME" type bridge 2>/dev/null || fail 100 "the link cannot be made"
    printf '{"cniVersion": "%s", "interfaces": [{"name": "%s", "sandbox": "%s"}]}' "$version" "$CNI_IFNAME" "$CNI_NETNS"
    ;;
DEL) inside link delete "$CNI_IFNAME" 2>/dev/null ;;
CHECK) inside link show "$CNI_IFNAME" >/dev/null 2>&1 || fail 100 "$CNI_IFNAME is gone" ;;
*) fail 4 "CNI_COMMAND is $CNI_COMMAND" ;;
esac
exit 0
"""
BROKEN = """#!/bin/sh
if [ "$CNI_COMMAND" = VERSION ]; then
    echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'
    exit
fi
echo "debugging $CNI_COMMAND"
[ "$CNI_COMMAND" != DEL ] || { echo "no such container" >&2; exit 3; }
echo '{"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.2"}]}'
"""


def host_local(directory: Path) -> JsonObject:
    """A small range of addresses."""
    ranges = [[{"subnet": "10.7.0.0/29"}]]
    return {"type": "host-local", "dataDir": str(directory / "leases"), "ranges": ranges}


def judge(directory: Path, plugin: Path, **configuration: object) -> tuple[dict[str, int], str]:
    """Run pytest with the plugin; return how many tests ended in which way, and the report."""
    file = directory / "configuration.json"
    file.write_text(json.dumps(configuration), "utf-8")
    command = (sys.executable, "-m", "pytest", "-p", "pytest_cni.plugin", "-p", "no:cacheprovider", "-q", "-rs")
    done = subprocess.run(
        (*command, "--cni-plugin", str(plugin), "--cni-config", str(file)),
        cwd=directory,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.findall(r"(\d+) (passed|failed|skipped|error)", done.stdout.splitlines()[-1])
    return {outcome: int(number) for number, outcome in found}, done.stdout


def script(directory: Path, text: str) -> Path:
    """A plugin that is a script."""
    path = directory / "mine"
    path.write_text(text, "utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture(name="bridge")
def remove_bridge(private_namespaces: int) -> Iterator[str]:
    """The bridge's name."""
    assert private_namespaces
    yield "cni-kit"
    subprocess.run(["ip", "link", "delete", "cni-kit"], check=False, capture_output=True)


def test_bridge(tmp_path: Path, bridge: str) -> None:
    """The reference plugin passes all clauses but the two of CNI 1.1.0, which Debian's does not have."""
    counts, report = judge(tmp_path, PLUGINS / "bridge", bridge=bridge, isGateway=True, ipam=host_local(tmp_path))
    assert (counts.get("failed", 0), counts["skipped"]) == (0, 2), report


def test_host_local(tmp_path: Path, private_namespaces: int) -> None:
    """An IPAM plugin makes no interface, and is tested as such."""
    assert private_namespaces
    counts, report = judge(tmp_path, PLUGINS / "host-local", ipam=host_local(tmp_path))
    assert (counts.get("failed", 0), counts["skipped"]) == (0, 2), report


@pytest.mark.long
def test_a_shell_script(tmp_path: Path, private_namespaces: int) -> None:
    """A plugin without addresses conforms as well."""
    assert private_namespaces
    counts, report = judge(tmp_path, script(tmp_path, SHELL))
    assert (counts.get("failed", 0), counts["skipped"]) == (0, 2), report


def test_a_broken_plugin(tmp_path: Path, private_namespaces: int) -> None:
    """Each broken clause fails, with the plugin's own words, and without a traceback of ours."""
    assert private_namespaces
    counts, report = judge(tmp_path, script(tmp_path, BROKEN))
    assert counts == {"failed": 15, "passed": 1, "skipped": 2}, report
    assert "ADD: standard output is not one JSON object" in report
    assert "    debugging ADD" in report
    assert "DEL: it must succeed" in report
    assert "    no such container" in report
    assert "During handling" not in report
    assert "clauses.py:" not in report.partition("short test summary")[0]


def test_a_plugin_that_is_missing(tmp_path: Path, private_namespaces: int) -> None:
    """The command says so."""
    assert private_namespaces
    done = subprocess.run(
        (sys.executable, "-m", "pytest", "-p", "pytest_cni.plugin", "--cni-plugin", "missing"),
        cwd=tmp_path,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "--cni-plugin: there is no file missing" in done.stderr
