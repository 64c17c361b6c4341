# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is read about networks and IPAM sections."""

import json
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.doctor.networks import find_sections, gather_networks
from tests.records import list_of


@pytest.mark.parametrize(
    ("ipam", "message"),
    [
        ({"subnet": 5}, "subnet must be a string, not a number"),
        ({"dataDir": 5, "subnet": "10.1.0.0/24"}, "dataDir must be a string, not a number"),
    ],
)
async def test_a_list_that_its_plugins_cannot_parse(tmp_path: Path, ipam: JsonObject, message: str) -> None:
    """It is a problem of this network, and ends nothing."""
    plugin: JsonObject = {"type": "bridge", "ipam": {"type": "host-local", **ipam}}
    network = list_of(plugin)
    (found,) = await gather_networks((network,), Settings(cni_bin_dirs=(tmp_path,)), used=None, quick=True)
    assert found.problems == (f"the plugins cannot parse it: {message}",)
    assert found.reserved == ()


async def test_a_list_whose_packets_are_dropped(tmp_path: Path) -> None:
    """A MAC that is set after the rules against spoofing were made: containers on the network are refused."""
    plugins: list[JsonValue] = [{"type": "bridge", "macspoofchk": True}, {"type": "tuning", "mac": "02:00:00:00:00:01"}]
    network = list_of(*plugins)
    (found,) = await gather_networks((network,), Settings(cni_bin_dirs=(tmp_path,)), used=None, quick=True)
    (problem,) = found.problems
    assert "leave out macspoofchk" in problem


async def test_ipam_sections(tmp_path: Path) -> None:
    """Files with nothing but a section are examined, too; what is wrong with one is found, and hides no other."""
    ipam: JsonObject = {"type": "host-local", "subnet": "10.1.2.0/24", "dataDir": str(tmp_path / "data")}
    leased: JsonObject = {"ipam": {"type": "dhcp"}}
    for name, document in (("lan", {"ipam": ipam}), ("leased", leased), ("bare", {})):
        (tmp_path / f"{name}.ipam").write_text(json.dumps({"cniVersion": "1.0.0", "name": name, **document}))
    found, broken = find_sections(ConfigurationDirectories(tmp_path))
    assert broken == [
        f"{tmp_path}/bare.ipam: ipam is missing",
        next(text for text in broken if text.startswith(f"IPAM section leased ({tmp_path}/leased.ipam) cannot give")),
    ]
    settings = Settings(cni_bin_dirs=(tmp_path,))
    (section,) = await gather_networks(found, settings, used=None, quick=False, are_sections=True)
    assert (section.subject, section.warnings) == ("IPAM section lan", ())
    assert len([text for text in section.problems if "host-local" in text]) == 1
