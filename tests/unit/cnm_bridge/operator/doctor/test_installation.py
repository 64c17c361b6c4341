# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the doctor reads: owners and permissions of all that root runs and reads, networks and IPAM sections."""

import json
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import ConfigurationDirectories
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.doctor.facts import PathFacts
from cnm_bridge.operator.doctor.installation import gather_paths
from cnm_bridge.operator.doctor.networks import find_sections, gather_networks
from tests.records import list_of


def gather(root: Path) -> dict[Path, PathFacts]:
    """Return what is known about a host whose files are below a directory."""
    settings = Settings(
        config=root / "etc/config.toml",
        cni_bin_dirs=(root / "bin",),
        cni_conf_dirs=(root / "net.d",),
        state_dir=root / "state",
        run_dir=root / "run",
        socket=root / "plugins/s.sock",
    )
    return {facts.path: facts for facts in gather_paths(settings)}


def make(file: Path, mode: int) -> Path:
    """Make a file and its directories."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()
    file.chmod(mode)
    return file


def test_what_root_trusts(tmp_path: Path) -> None:
    """Plugins, configurations with the further plugins of a list, settings, keys, and their directories."""
    plugin = make(tmp_path / "bin/bridge", 0o777)
    plugin.parent.chmod(0o1777)
    modes = {
        plugin: 0o777,
        plugin.parent: 0o1777,
        make(tmp_path / "net.d/10-blue.conflist", 0o600): 0o600,
        make(tmp_path / "net.d/blue/20-x.conf", 0o666): 0o666,
        make(tmp_path / "etc/config.toml", 0o644): 0o644,
        make(tmp_path / "run/admin.sock", 0o600).parent: 0o755,
    }
    found = gather(tmp_path)
    assert {path: found[path].mode & 0o7777 for path in modes} == modes
    assert {found[path].leads_to for path in modes} == {None}
    assert [path for path, facts in found.items() if facts.is_private] == [
        tmp_path / "run/admin.sock",
    ]


def test_the_way_there(tmp_path: Path) -> None:
    """All directories above, and those above the targets of symbolic links; links that lead nowhere do no harm."""
    target = make(tmp_path / "home/user/bridge", 0o755)
    make(tmp_path / "bin/other", 0o755)
    (tmp_path / "bin/bridge").symlink_to(target)
    (tmp_path / "bin/loop").symlink_to("loop")
    (tmp_path / "bin/gone").symlink_to("/nonexistent/gone")
    found = gather(tmp_path)
    assert found[tmp_path / "bin/bridge"].leads_to is None
    assert found[target.parent].leads_to == tmp_path / "bin/bridge"
    assert found[target.parent.parent].leads_to == tmp_path / "bin/bridge"
    assert found[tmp_path].leads_to == tmp_path / "bin"
    assert found[Path("/")].leads_to == tmp_path / "bin"
    assert tmp_path / "bin/loop" not in found


def test_a_link_between(tmp_path: Path) -> None:
    """Who can write to its directory chooses where it leads, although neither end is there."""
    make(tmp_path / "usr/lib/cni/bridge", 0o755)
    middle = tmp_path / "home/u/mid"
    middle.parent.mkdir(parents=True)
    middle.symlink_to(tmp_path / "usr/lib/cni")
    (tmp_path / "bin").symlink_to(middle)
    found = gather(tmp_path)
    assert found[middle.parent].leads_to == tmp_path / "bin"
    assert found[tmp_path / "usr/lib"].leads_to == tmp_path / "bin"


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
