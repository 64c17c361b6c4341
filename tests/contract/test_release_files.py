# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The files of a release: the example of the settings, and the versions that it was tested with."""

import configparser
import re
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
    """The folder has the archives of each extra; the package has all but what tests plugins."""
    (name,) = re.findall(r"^name = (.+)$", (ROOT / f"extras/{extra}/setup.cfg").read_text("utf-8"), re.MULTILINE)
    for script in ("build-release", *(["build-deb"] if extra != "pytest_cni" else [])):
        text = (ROOT / "packaging" / script).read_text("utf-8")
        assert re.search(rf"dist/\{{[^}}]*\b{name.replace('-', '_')}\b", text), script


def test_private_tables_have_an_upper_bound() -> None:
    """pyroute2's layouts of messages are not a public interface, so no untested version is installed."""
    (pyroute2,) = (one for one in requirements() if one.name == "pyroute2")
    assert "99" not in pyroute2.specifier
