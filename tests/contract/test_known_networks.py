# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Configurations of the forms that products install load, can be negotiated, and can be explained."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cni_invoker import Attachment, ConfigurationDirectories, Runtime
from cni_invoker.advanced import requests_for_add
from cnm_bridge.operator.cli.main import main

NETWORKS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("known_networks.yaml").read_text("utf-8"))
SPOKEN = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0")
PLUGIN = f"""#!/bin/sh
cat >/dev/null
echo '{json.dumps({"cniVersion": "1.0.0", "supportedVersions": SPOKEN})}'
"""
ATTACHMENT = Attachment(
    container_id="c1",
    ifname="eth0",
    netns="/run/netns/c1",
    capability_args={
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 1000, "ingressBurst": 1000},
        "mac": "c2:11:22:33:44:55",
        "aliases": ["web"],
        "deviceID": "0000:04:00.5",
        "infinibandGUID": "c2:11:22:33:44:55:66:77",
    },
)


def install(directory: Path, name: str) -> ConfigurationDirectories:
    """Write a configuration into a directory."""
    kind = NETWORKS[name].get("file", "conflist")
    directory.mkdir()
    (directory / f"10-{name}.{kind}").write_text(json.dumps(NETWORKS[name]["list"]))
    return ConfigurationDirectories(directory)


def install_plugins(directory: Path, types: Iterable[str]) -> Path:
    """Write plugins that know VERSION alone into a new directory, and return it."""
    directory.mkdir()
    for plugin_type in types:
        (directory / plugin_type).write_text(PLUGIN)
        (directory / plugin_type).chmod(0o755)
    return directory


def version_of(name: str) -> str:
    """Return the version of a configuration; one without is of 0.1.0."""
    return str(NETWORKS[name]["list"].get("cniVersion", SPOKEN[0]))


def test_there_are_enough() -> None:
    """All are of different products or forms."""
    assert len(NETWORKS) >= 30
    assert len({json.dumps(one["list"], sort_keys=True) for one in NETWORKS.values()}) == len(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
async def test_it_loads_and_is_negotiated(name: str, tmp_path: Path) -> None:
    """Every key reaches the plugin unchanged, and of the capability arguments those that it declares."""
    document = NETWORKS[name]["list"]
    index = install(tmp_path / "net.d", name).index()
    assert index.problems == ()
    network = index.find(document["name"])
    plugins = document.get("plugins", [document])
    assert [plugin.type for plugin in network.plugins] == [plugin["type"] for plugin in plugins]

    if version_of(name) in SPOKEN:
        negotiated = await Runtime(install_plugins(tmp_path / "bin", network.plugin_types)).negotiate(network)
        assert negotiated.cni_version == version_of(name)
    for plugin, request in zip(plugins, requests_for_add(network, ATTACHMENT, [tmp_path]), strict=True):
        received = json.loads(request.stdin)
        declared = {key for key, wanted in plugin.get("capabilities", {}).items() if wanted}
        assert received.pop("runtimeConfig", {}).keys() == declared & ATTACHMENT.capability_args.keys()
        changed = {"name", "cniVersion", "capabilities"}
        assert {**plugin, **{key: received.get(key) for key in changed}} == {**dict.fromkeys(changed), **received}


@pytest.mark.parametrize("name", [name for name in NETWORKS if version_of(name) in SPOKEN])
def test_it_is_explained(name: str, tmp_path: Path) -> None:
    """`cni-bridge explain` shows what each plugin would receive, or why the daemon refuses the configuration."""
    document = NETWORKS[name]["list"]
    network = install(tmp_path / "net.d", name).index().find(document["name"])
    install_plugins(tmp_path / "bin", network.plugin_types)
    directories = (
        f"--cni-conf-dir={tmp_path}/net.d",
        f"--cni-bin-dir={tmp_path}/bin",
        "--run-dir=/run/x",
        f"--docker-host=unix://{tmp_path}/none",
    )
    done = CliRunner().invoke(main, ["explain", *directories, "--json", document["name"]])
    if "refused" in NETWORKS[name]:
        assert NETWORKS[name]["refused"] in done.output
        assert done.exit_code == 1
        return
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [plugin["type"] for plugin in found["plugins"]] == [plugin.type for plugin in network.plugins]
    assert found["cniVersion"] == version_of(name)
