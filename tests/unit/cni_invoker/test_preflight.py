# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One report of everything that can prevent a network from working."""

import os
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Limits, NetworkConfigurationList, Preflight, Runtime, run_preflight
from tests.plugins import FakePlugins

LIMITS = Limits(version_s=20.0, grace_s=0.3, executions=4)
BRIDGE: JsonValue = {"type": "bridge", "capabilities": {"mac": True, "ips": False}, "ipam": {"type": "host-local"}}
FOREIGN = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + (243).to_bytes(2, "little") + bytes(44)
"""The header of a program for riscv64."""


def network(*plugins: JsonValue, **keys: JsonValue) -> NetworkConfigurationList:
    """Make a network configuration list."""
    return NetworkConfigurationList.from_document(
        {"name": "blue", "cniVersion": "1.0.0", "plugins": list(plugins), **keys}, source=Path("/etc/blue.conflist")
    )


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """Four plugins that work."""
    plugins = FakePlugins(tmp_path / "bin")
    for name in ("bridge", "host-local", "portmap", "flannel"):
        plugins.install(name, VERSION={"supportedVersions": ["0.4.0", "1.0.0"]})
    return plugins


async def preflight(plugins: FakePlugins, *listed: JsonValue, **keys: JsonValue) -> Preflight:
    """Return the report on a list."""
    return await run_preflight(Runtime([plugins.directory], LIMITS), network(*listed, **keys))


async def test_the_report_of_a_usable_list(plugins: FakePlugins) -> None:
    """Each plugin is listed with its path, versions and capabilities; VERSION alone was run."""
    report = await preflight(
        plugins, BRIDGE, {"type": "portmap", "capabilities": {"portMappings": True, "mac": True}}, cniVersions=["1.1.0"]
    )
    assert report.is_good
    assert (report.network, report.cni_version) == ("blue", "1.0.0")
    assert [(found.label, found.path, found.supported) for found in report.plugins] == [
        (label, plugins.directory / label.partition(" ")[0], ("0.4.0", "1.0.0"))
        for label in ("bridge", "host-local (ipam)", "portmap")
    ]
    assert {verb for _, verb in plugins.calls} == {"VERSION"}
    both = "capabilities mac, portMappings"
    assert report.render_text().splitlines() == [
        "blue (/etc/blue.conflist): CNI 1.0.0",
        f"  ok       bridge               {plugins.directory}/bridge; CNI 0.4.0, 1.0.0; capabilities mac",
        f"  ok         host-local (ipam)  {plugins.directory}/host-local; CNI 0.4.0, 1.0.0",
        f"  ok       portmap              {plugins.directory}/portmap; CNI 0.4.0, 1.0.0; {both}",
    ]


async def test_every_missing_plugin_is_reported(plugins: FakePlugins) -> None:
    """All missing plugins are reported at once, with the directories searched, and a suggestion."""
    (plugins.directory / "host-local").unlink()
    (plugins.directory / "portmap").chmod(0o644)
    report = await preflight(plugins, BRIDGE, {"type": "flanel"}, {"type": "portmap"}, {"type": "own"})
    where = f"not found in {plugins.directory}"
    own = "; it is one of the CNI project's own (Debian: containernetworking-plugins)"
    no_mode = "; make it executable (chmod +x), or see that its file system is not mounted noexec"
    assert report.cni_version is None
    assert report.all_problems == (
        f"host-local (ipam): {where}{own}",
        f"flanel: {where}",
        f"portmap: found but not executable: {plugins.directory}/portmap{no_mode}",
        f"own: {where}",
    )
    assert "blue (/etc/blue.conflist): not usable" in report.render_text()
    assert f"\n  PROBLEM  own                  {where}" in report.render_text()
    assert f"\n  PROBLEM    host-local (ipam)  {where}" in report.render_text()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (FOREIGN, f"neither a program for this host ({os.uname().machine})"),
        (b"#!/nowhere/python3\n", "its interpreter is missing: #!/nowhere/python3"),
        (b"echo\n", "nor a script that names its interpreter"),
    ],
)
async def test_a_plugin_that_cannot_be_executed_is_reported_with_the_reason(
    plugins: FakePlugins, content: bytes, reason: str
) -> None:
    """The reason is the architecture, the missing interpreter, or that the file is not a program."""
    (plugins.directory / "bridge").write_bytes(content)
    report = await preflight(plugins, BRIDGE)
    (problem,) = report.all_problems
    assert problem.startswith(f"bridge: cannot execute {plugins.directory}/bridge: ")
    assert reason in problem


async def test_a_plugin_that_fails_version_is_a_warning(plugins: FakePlugins) -> None:
    """The warning has the plugin's error, and the assumption made instead."""
    plugins.install("bridge", VERSION={"error": {"code": 999, "msg": "banana"}})
    report = await preflight(plugins, BRIDGE, cniVersions=["0.4.0"])
    assert (report.is_good, report.cni_version) == (True, "1.0.0")
    failure = 'bridge: does not say which CNI versions it speaks (plugin type="bridge" failed (version): banana'
    (warning,) = report.all_warnings
    assert warning.startswith(failure)
    assert warning.endswith("; it is taken to speak what the list offers")
    single = await preflight(plugins, BRIDGE)
    (warning,) = single.all_warnings
    assert warning.startswith(failure)
    assert warning.endswith("; ADD will show")
    assert "\n  WARNING  bridge               does not say which" in single.render_text()


async def test_an_ipam_type_without_executable_is_a_warning(plugins: FakePlugins) -> None:
    """It is a problem only if the plugin is known to execute its IPAM plugin."""
    (plugins.directory / "host-local").unlink()
    plugins.install("azure-vnet")
    for keys in ({}, {"cniVersions": ["0.4.0"]}):
        report = await preflight(plugins, {"type": "azure-vnet", "ipam": {"type": "azure-cns"}}, **keys)
        assert (report.is_good, report.cni_version) == (True, "1.0.0")
        (warning,) = report.all_warnings
        guess = "right if azure-vnet does not execute it; otherwise ADD will fail"
        assert warning == f"azure-cns (ipam): not found in {plugins.directory} ({guess})"
    assert not (await preflight(plugins, BRIDGE)).is_good


async def test_incompatible_versions_are_reported(plugins: FakePlugins) -> None:
    """A plugin that supports no version of the list is named; so are all plugins of a list without a common version."""
    plugins.install("portmap", VERSION={"supportedVersions": ["0.1.0", "0.2.0"]})
    report = await preflight(plugins, BRIDGE, {"type": "portmap"}, cniVersions=["0.3.1"])
    assert report.all_problems == (
        'portmap: plugin portmap does not support config version "1.0.0", "0.3.1"; it supports 0.1.0, 0.2.0',
    )
    report = await preflight(plugins, BRIDGE, {"type": "portmap"})
    assert (report.is_good, report.cni_version) == (True, "1.0.0")
    (warning,) = report.all_warnings
    assert warning.startswith('portmap: plugin portmap does not support config version "1.0.0"; it supports 0.1.0, 0.2')
    assert warning.endswith(", as it says itself. The list offers no other, so ADD will show")
    plugins.install("portmap", VERSION={"supportedVersions": ["0.3.1"]})
    report = await preflight(plugins, BRIDGE, {"type": "portmap"}, cniVersions=["0.3.1"])
    assert [found.problems for found in report.plugins] == [(), (), ()]
    (problem,) = report.problems
    assert "plugin portmap supports 0.3.1" in problem
    assert report.cni_version is None


@pytest.mark.parametrize(
    "second", [{"type": "macvlan"}, {"type": "bridge"}, {"type": "host-device", "device": "eth1"}], ids=str
)
async def test_two_plugins_that_make_the_link(plugins: FakePlugins, second: JsonObject) -> None:
    """The second one would fail, with words that do not say so."""
    for name in ("bridge", "macvlan", "host-device"):
        plugins.install(name, VERSION={"supportedVersions": ["1.0.0"]})
    found = await preflight(plugins, {"type": "bridge"}, second)
    (problem,) = found.problems
    assert problem.startswith(f"plugins bridge and {second['type']} each make the container's link")
    assert f"put {second['type']} into a list of its own" in problem


@pytest.mark.parametrize("second", ["tuning", "firewall", "portmap", "bandwidth", "sbr", "vrf", "third-party"])
async def test_plugins_that_complete_the_link(plugins: FakePlugins, second: str) -> None:
    """All others may, also those that are not known, and a device without a link."""
    for name in ("bridge", second, "host-device"):
        plugins.install(name, VERSION={"supportedVersions": ["1.0.0"]})
    device: JsonObject = {"type": "host-device", "pciBusID": "0000:3d:00.1"}
    assert (await preflight(plugins, {"type": "bridge"}, {"type": second}, device)).is_good


async def test_mistyped_keys_of_known_plugins_are_warnings(plugins: FakePlugins) -> None:
    """The plugin would ignore them; keys of newer releases and notes of the operator's own are no mistakes."""
    ipam: JsonObject = {"type": "host-local", "subnt": "10.1.0.0/24", "ranges": [[{"rangeStat": "10.1.0.9"}]]}
    bridge: JsonObject = {"type": "bridge", "isGatway": True, "ipMasqBackend": "nftables", "note": "", "ipam": ipam}
    plugins.install("custom", VERSION={"supportedVersions": ["1.0.0"]})
    report = await preflight(plugins, bridge, {"type": "custom", "isGatway": True}, {"type": "portmap", "snatt": True})
    assert report.is_good
    assert report.all_warnings == (
        'bridge: ignores the key "isGatway"; did you mean "isGateway"?',
        'host-local (ipam): ignores the key "subnt"; did you mean "subnet"?',
        'host-local (ipam): ignores the key "rangeStat"; did you mean "rangeStart"?',
        'portmap: ignores the key "snatt"; did you mean "snat"?',
    )
