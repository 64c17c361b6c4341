# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The files of a release: the example of the settings, and the versions that it was tested with."""

import ast
import configparser
import re
import sys
import tomllib
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement

import cni_egress
import cni_invoker
import cni_ipam_etcd
import cni_plugin
import cni_tool
import cnm_bridge
import cnm_plugin
import netavark_plugin
import pytest_cni
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.commands.serve import serve

ROOT = Path(__file__).parents[2]
EXAMPLE = (ROOT / "packaging/config.toml").read_text("utf-8")
CONSTRAINTS = (ROOT / "packaging/constraints.txt").read_text("utf-8")


def requirements() -> list[Requirement]:
    """Return what setup.cfg requires of users, without the package that is built from the same checkout."""
    document = configparser.ConfigParser(interpolation=None)
    document.read(ROOT / "setup.cfg", "utf-8")
    lines = document["options"]["install_requires"].splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "cni-invoker"))]


def test_the_example_has_each_setting_with_its_default() -> None:
    """Without the marks of the comments it is the configuration file of a daemon with the defaults."""
    shown = tomllib.loads(re.sub(r"^#(?=[a-z-]+ =)", "", EXAMPLE, flags=re.MULTILINE))
    options = [option for option in serve.params if isinstance(option, click.Option) and option.opts[0] != "--config"]
    expected = {option.opts[0].removeprefix("--"): option.default for option in options}
    expected["admin-socket"] = Settings().admin_path
    assert shown.keys() == expected.keys()
    for key, default in expected.items():
        assert shown[key] == ([str(one) for one in default] if isinstance(default, tuple) else _plain(default))


def _plain(default: object) -> object:
    return default if isinstance(default, bool | float) else str(default)


def test_the_example_changes_nothing() -> None:
    """As it is installed, it sets nothing."""
    assert tomllib.loads(EXAMPLE) == {}


def test_constraints_fit_the_requirements() -> None:
    """Each library that setup.cfg requires is pinned to a version that it allows, and each pin has a hash."""
    pins = dict(re.findall(r"^([a-z0-9-]+)==([^ ;]+)", CONSTRAINTS, re.MULTILINE))
    assert {one.name: pins.get(one.name) for one in requirements() if pins.get(one.name, "") not in one.specifier} == {}
    entries = re.split(r"\n(?=[a-z])", CONSTRAINTS.strip())
    assert len(entries) == len(pins)
    assert [entry.partition("\n")[0] for entry in entries if "--hash=sha256:" not in entry] == []


EXTRAS = {
    "cni_egress": cni_egress,
    "cni_ipam_etcd": cni_ipam_etcd,
    "cni_plugin": cni_plugin,
    "cni_tool": cni_tool,
    "cnm": cnm_plugin,
    "netavark": netavark_plugin,
    "pytest_cni": pytest_cni,
}


@pytest.mark.parametrize("settings", ["setup.cfg", *(f"extras/{name}/setup.cfg" for name in EXTRAS)])
def test_all_distributions_have_one_version(settings: str) -> None:
    """The others require the library, and the tool, of the same release."""
    assert {package.__version__ for package in (cni_invoker, cnm_bridge, *EXTRAS.values())} == {cnm_bridge.__version__}
    lines = re.findall(r"^    (cni-(?:invoker|plugin|tool) >.*)$", (ROOT / settings).read_text("utf-8"), re.MULTILINE)
    required = {one.name: one.specifier for one in map(Requirement, lines)}
    assert "cni-invoker" in required
    assert [name for name, versions in required.items() if cni_invoker.__version__ not in versions] == []


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_a_release_has_all_distributions(extra: str) -> None:
    """The folder has the wheel and the source of each extra; the package has all but what tests plugins."""
    (name,) = re.findall(r"^name = (.+)$", (ROOT / f"extras/{extra}/setup.cfg").read_text("utf-8"), re.MULTILINE)
    pattern = rf"dist/\{{[^}}]*\b{name.replace('-', '_')}\b[^}}]*\}}-\*(\S+?)[ )]"
    release, package = ((ROOT / "packaging" / script).read_text("utf-8") for script in ("build-release", "build-deb"))
    if extra == "pytest_cni":
        assert re.findall(pattern, release) == [".tar.gz"]
        assert "dist/pytest_cni-*.whl" in release
    else:
        assert re.findall(pattern, release) == [".whl", ".tar.gz"]
        assert re.findall(pattern, package) == [".whl"]


def test_each_distribution_is_published_after_those_that_it_requires() -> None:
    """RELEASING.md names the distributions that others require before "the other extras", each after its own."""
    text = (ROOT / "RELEASING.md").read_text("utf-8")
    (order,) = re.findall(r"to PyPI: the library, (.*?), the other extras, then the daemon\.", text)
    published = re.findall(r"`([a-z-]+)`", order)
    required = {one for extra in EXTRAS for one in _required_by(extra) if one.startswith("cni-")} - {"cni-invoker"}
    assert {*published} == required
    for extra in EXTRAS:
        name = extra.replace("_", "-")
        if name in published:
            assert _required_by(extra).isdisjoint(published[published.index(name) :])


@pytest.mark.parametrize("extra", sorted(EXTRAS))
def test_an_extra_requires_what_it_imports(extra: str) -> None:
    """Each library that its modules import is among the requirements of its setup.cfg."""
    folder = ROOT / f"extras/{extra}/src"
    trees = [ast.parse(path.read_text("utf-8")) for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)]
    own = {path.name for path in folder.iterdir()}
    imported = {name.partition(".")[0] for name in names} - sys.stdlib_module_names - own
    assert {name.replace("_", "-") for name in imported} <= _required_by(extra)
    assert "cni_invoker" in imported


def _required_by(extra: str) -> set[str]:
    """Return the names of the distributions that an extra requires."""
    document = configparser.ConfigParser(interpolation=None)
    document.read(ROOT / f"extras/{extra}/setup.cfg", "utf-8")
    return {Requirement(line).name for line in document["options"]["install_requires"].split("\n") if line}


def test_private_tables_have_an_upper_bound() -> None:
    """pyroute2's layouts of messages are not a public interface, so no untested version is installed."""
    (pyroute2,) = (one for one in requirements() if one.name == "pyroute2")
    assert "99" not in pyroute2.specifier
