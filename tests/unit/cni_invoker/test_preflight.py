# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One report of all that could keep a network from working."""

import os
from pathlib import Path

import pytest

from cni_invoker import Limits, NetworkConfigurationList, Preflight, Role, Runtime, run_preflight
from spec import JsonValue
from tests.plugins import FakePlugins

LIMITS = Limits(version_s=20.0, grace_s=0.3, executions=4)
BRIDGE: JsonValue = {"type": "bridge", "capabilities": {"mac": True, "ips": False}, "ipam": {"type": "host-local"}}
FOREIGN = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + (243).to_bytes(2, "little") + bytes(44)
"""The header of a program for riscv64."""


def network(*plugins: JsonValue, **keys: JsonValue) -> NetworkConfigurationList:
    """Make a list."""
    return NetworkConfigurationList.from_document(
        {"name": "blue", "cniVersion": "1.0.0", "plugins": list(plugins), **keys}, source=Path("/etc/blue.conflist")
    )


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """Four good plugins."""
    plugins = FakePlugins(tmp_path / "bin")
    for name in ("bridge", "host-local", "portmap", "flannel"):
        plugins.install(name, VERSION={"supportedVersions": ["0.4.0", "1.0.0"]})
    return plugins


async def look(plugins: FakePlugins, *listed: JsonValue, **keys: JsonValue) -> Preflight:
    """Return the report on a list."""
    return await run_preflight(Runtime([plugins.directory], LIMITS), network(*listed, **keys))


async def test_a_good_list(plugins: FakePlugins) -> None:
    """Every plugin has its path and its versions; nothing but VERSION was run."""
    report = await look(
        plugins, BRIDGE, {"type": "portmap", "capabilities": {"portMappings": True, "mac": True}}, cniVersions=["1.1.0"]
    )
    assert report.is_good
    assert (report.network, report.cni_version) == ("blue", "1.0.0")
    assert report.capabilities == ("mac", "portMappings")
    assert [(found.type, found.role, found.path, found.supported) for found in report.plugins] == [
        (name, role, plugins.directory / name, ("0.4.0", "1.0.0"))
        for name, role in (("bridge", Role.PLUGIN), ("host-local", Role.IPAM), ("portmap", Role.PLUGIN))
    ]
    assert {verb for _, verb in plugins.calls} == {"VERSION"}
    both = "capabilities mac, portMappings"
    assert report.render_text().splitlines() == [
        "blue (/etc/blue.conflist): CNI 1.0.0",
        f"  ok       bridge               {plugins.directory}/bridge; CNI 0.4.0, 1.0.0; capabilities mac",
        f"  ok         host-local (ipam)  {plugins.directory}/host-local; CNI 0.4.0, 1.0.0",
        f"  ok       portmap              {plugins.directory}/portmap; CNI 0.4.0, 1.0.0; {both}",
    ]


async def test_delegates(plugins: FakePlugins) -> None:
    """The plugins that meta plugins will run are looked at too, and theirs, as deep as it goes."""
    multus: JsonValue = {"type": "flannel", "delegates": [{"name": "x", "plugins": [BRIDGE, {"type": "gone"}]}, 7]}
    report = await look(plugins, {"type": "flannel", "delegate": {"type": "bridge", "ipam": {"type": "gone"}}}, multus)
    assert [(found.type, found.role) for found in report.plugins] == [
        ("flannel", Role.PLUGIN),
        ("bridge", Role.DELEGATE),
        ("gone", Role.IPAM),
        ("flannel", Role.PLUGIN),
        ("bridge", Role.DELEGATE),
        ("host-local", Role.IPAM),
        ("gone", Role.DELEGATE),
    ]
    assert [found.type for found in report.plugins if found.problems] == ["gone", "gone"]


async def test_what_is_missing(plugins: FakePlugins) -> None:
    """All that is missing is told at once, with where it was looked for and what may have been meant."""
    (plugins.directory / "host-local").unlink()
    (plugins.directory / "portmap").chmod(0o644)
    report = await look(plugins, BRIDGE, {"type": "flanel"}, {"type": "portmap"}, {"type": "own"})
    where = f"not found in {plugins.directory}"
    own = "; it is one of the CNI project's own (Debian: containernetworking-plugins)"
    no_mode = "; make it executable (chmod +x), or see that its file system is not mounted noexec"
    assert report.cni_version is None
    assert report.all_problems == (
        f"host-local (ipam): {where}{own}",
        f"flanel: {where}; did you mean 'flannel'?",
        f"portmap: found but not executable: {plugins.directory}/portmap{no_mode}",
        f"own: {where}",
    )
    assert "blue (/etc/blue.conflist): not usable" in report.render_text()
    assert f"\n  PROBLEM  own                  {where}" in report.render_text()
    assert f"\n  PROBLEM    host-local (ipam)  {where}" in report.render_text()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (FOREIGN, f"built for riscv64, this host is {os.uname().machine}"),
        (b"#!/nowhere/python3\n", "its interpreter /nowhere/python3 is missing"),
        (b"echo\n", "neither a program (ELF) nor a script that names its interpreter"),
    ],
)
async def test_what_does_not_run(plugins: FakePlugins, content: bytes, reason: str) -> None:
    """A program for another architecture, or without its interpreter, is told from one that fails."""
    (plugins.directory / "bridge").write_bytes(content)
    report = await look(plugins, BRIDGE)
    (problem,) = report.all_problems
    assert problem.startswith(f"bridge: cannot execute {plugins.directory}/bridge: ")
    assert reason in problem


async def test_a_plugin_that_does_not_tell_its_versions(plugins: FakePlugins) -> None:
    """What it says instead is a warning, with what was guessed."""
    plugins.install("bridge", VERSION={"error": {"code": 999, "msg": "banana"}})
    report = await look(plugins, BRIDGE, cniVersions=["0.4.0"])
    assert (report.is_good, report.cni_version) == (True, "1.0.0")
    failure = 'bridge: does not say which CNI versions it speaks (plugin type="bridge" failed (version): banana'
    (warning,) = report.all_warnings
    assert warning.startswith(failure)
    assert warning.endswith("; it is taken to speak what the list offers")
    single = await look(plugins, BRIDGE)
    (warning,) = single.all_warnings
    assert warning.startswith(failure)
    assert warning.endswith("; ADD will show")
    assert "\n  WARNING  bridge               does not say which" in single.render_text()
    found = single.render_json()["plugins"]
    assert isinstance(found, list)
    assert found[0]["warnings"] == [warning.removeprefix("bridge: ")]


async def test_an_ipam_type_without_executable(plugins: FakePlugins) -> None:
    """A name that only the plugin itself knows is a warning, except where the plugin is known to execute it."""
    (plugins.directory / "host-local").unlink()
    plugins.install("azure-vnet")
    for keys in ({}, {"cniVersions": ["0.4.0"]}):
        report = await look(plugins, {"type": "azure-vnet", "ipam": {"type": "azure-cns"}}, **keys)
        assert (report.is_good, report.cni_version) == (True, "1.0.0")
        (warning,) = report.all_warnings
        guess = "right if azure-vnet does not execute it; otherwise ADD will fail"
        assert warning == f"azure-cns (ipam): not found in {plugins.directory} ({guess})"
    assert not (await look(plugins, BRIDGE)).is_good


async def test_versions_that_do_not_fit(plugins: FakePlugins) -> None:
    """A plugin that speaks none of the list's versions is named; so is every plugin of a chain with none in common."""
    plugins.install("portmap", VERSION={"supportedVersions": ["0.1.0", "0.2.0"]})
    report = await look(plugins, BRIDGE, {"type": "portmap"}, cniVersions=["0.3.1"])
    assert report.all_problems == (
        'portmap: plugin portmap does not support config version "1.0.0", "0.3.1"; it supports 0.1.0, 0.2.0',
    )
    report = await look(plugins, BRIDGE, {"type": "portmap"})
    assert (report.is_good, report.cni_version) == (True, "1.0.0")
    (warning,) = report.all_warnings
    assert warning.startswith('portmap: plugin portmap does not support config version "1.0.0"; it supports 0.1.0, 0.2')
    assert warning.endswith(", as it says itself. The list offers no other, so ADD will show")
    plugins.install("portmap", VERSION={"supportedVersions": ["0.3.1"]})
    report = await look(plugins, BRIDGE, {"type": "portmap"}, cniVersions=["0.3.1"])
    assert [found.problems for found in report.plugins] == [(), (), ()]
    (problem,) = report.problems
    assert "plugin portmap supports 0.3.1" in problem
    assert report.cni_version is None


async def test_as_json(plugins: FakePlugins) -> None:
    """The report is also there for programs."""
    (plugins.directory / "host-local").unlink()
    report = (await look(plugins, BRIDGE)).render_json()
    assert {key: report[key] for key in ("name", "source", "cniVersion", "capabilities", "problems")} == {
        "name": "blue",
        "source": "/etc/blue.conflist",
        "cniVersion": None,
        "capabilities": ["mac"],
        "problems": [],
    }
    found = report["plugins"]
    assert isinstance(found, list)
    assert found[0] == {
        "type": "bridge",
        "role": "plugin",
        "path": str(plugins.directory / "bridge"),
        "supportedVersions": ["0.4.0", "1.0.0"],
        "capabilities": ["mac"],
        "problems": [],
        "warnings": [],
    }


async def test_a_directory_that_cannot_be_listed(plugins: FakePlugins, tmp_path: Path) -> None:
    """What is missing is told with the hints that can still be had, never with an error of Python's."""
    unlistable = tmp_path / ("x" * 300)  # the kernel refuses the name, to root as well
    report = await run_preflight(
        Runtime([unlistable, tmp_path / "gone", plugins.directory], LIMITS), network({"type": "flanel"})
    )
    (problem,) = report.all_problems
    assert problem.endswith("; did you mean 'flannel'?")
