# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The wheels in an environment with packages called `spec` and `state`; `make test-install` runs this."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.lab.debian import FetchError, run_program
from tests.lab.pythons import VERSIONS, find_interpreter

ROOT = Path(__file__).parents[2]
README = (ROOT / "packaging/cni-invoker/README.md").read_text("utf-8")
PYTHONS = ("3.11", *VERSIONS)
OUR_PACKAGES = {
    "cni_bridge": {"cnm_bridge", "cni_bridge_spec", "cni_bridge_state"},
    "cni_invoker": {"cni_invoker"},
    "cni_plugin": {"cni_plugin"},
    "cni_tool": {"cni_tool"},
}
"""The packages of each wheel."""
NEIGHBOUR = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"
[project]
name = "state"
version = "1"
[tool.setuptools]
packages = ["state"]
"""
"""A project with a top-level package `state`; the one on PyPI is for Python 2 only."""

COMPLETIONS = {
    f"{directory}/{name}"
    for command in ("cni-bridge", "cni-invoker", "cni-ipam-etcd")
    for directory, name in (
        ("bash-completion/completions", command),
        ("zsh/site-functions", f"_{command}"),
        ("fish/vendor_completions.d", f"{command}.fish"),
    )
}
"""What completes the commands, where the shells look below a `share`."""
COMPLETE = """
. "$1/share/bash-completion/completions/cni-bridge"
PATH=$1/bin:$PATH
COMP_WORDS=(cni-bridge network cr) COMP_CWORD=2
_cni_bridge_completion cni-bridge
echo "${COMPREPLY[@]}"
"""

SHOW_NEIGHBOURS = """
import importlib.util, pathlib, state
spec = pathlib.Path(importlib.util.find_spec("spec").origin)
print("nose" in spec.read_text(), state.OWNER)
"""
"""PyPI's `spec` is a plugin of nose, which no longer works from Python 3.12 on; its file must be there all the same."""

MAKE_RECORDS = """
import pathlib, sys
from cni_bridge_state.store import Store
Store.open(pathlib.Path(sys.argv[1])).close()
"""


def find_wheel(name: str) -> Path:
    """Return a wheel that `make wheels` has built."""
    (wheel,) = (ROOT / "dist").glob(f"{name}-*.whl")
    return wheel


def _find_source(package: str) -> Path:
    """Return the folder of a package in the checkout."""
    folder = ROOT / package
    return (folder if folder.is_dir() else ROOT / f"extras/{package}/src/{package}").resolve()


@pytest.fixture(name="wheels")
def find_wheels() -> Sequence[str]:
    """The paths of the wheels."""
    return [str(find_wheel(name)) for name in OUR_PACKAGES]


@pytest.fixture(name="neighbour")
def make_neighbour(tmp_path: Path) -> Path:
    """A project that installs a package called `state`."""
    project = tmp_path / "neighbour"
    (project / "state").mkdir(parents=True)
    (project / "state/__init__.py").write_text("OWNER = 'neighbour'\n")
    (project / "pyproject.toml").write_text(NEIGHBOUR)
    return project


@pytest.fixture(name="python", params=PYTHONS)
def make_environment(request: pytest.FixtureRequest, tmp_path: Path) -> Sequence[str]:
    """The command of the interpreter of a new, empty virtual environment."""
    try:
        interpreter = find_interpreter(request.param)
    except FetchError as exc:
        pytest.skip(f"Python {request.param} is not available: {exc}")
    run_program(*interpreter.make_venv, str(tmp_path / "venv"))
    return (*interpreter.enter, str(tmp_path / "venv/bin/python"))


@pytest.mark.timeout(600)
def test_both_commands_work_beside_packages_called_spec_and_state(
    python: Sequence[str], wheels: Sequence[str], neighbour: Path, tmp_path: Path
) -> None:
    """Whichever is installed last, all of them keep their files and work."""
    run_program(*python, "-m", "pip", "install", "--quiet", "spec", *wheels, str(neighbour))
    run_program(*python, "-m", "pip", "install", "--quiet", "--no-deps", "--force-reinstall", *wheels)
    assert run_program(*python, "-Pc", SHOW_NEIGHBOURS, cwd=tmp_path).split() == ["True", "neighbour"]
    bridge, invoker = ((*python, str(tmp_path / "venv/bin" / name)) for name in ("cni-bridge", "cni-invoker"))
    configurations = tmp_path / "net.d"
    configurations.mkdir()
    (configurations / "blue.conflist").write_text(
        '{"cniVersion": "1.0.0", "name": "blue", "plugins": [{"type": "no-such-plugin"}]}'
    )
    listed = run_program(*invoker, "list", environment={"NETCONFPATH": str(configurations)}, cwd=tmp_path)
    assert "blue" in listed
    completed = run_program("bash", "-c", COMPLETE, "bash", str(tmp_path / "venv"))
    assert completed.split() == ["create"] or python[0] != str(tmp_path / "venv/bin/python")  # another root directory's
    records = tmp_path / "records"
    run_program(*python, "-Pc", MAKE_RECORDS, str(records), cwd=tmp_path)
    assert '"networks"' in run_program(*bridge, "state", "export", "--state-dir", str(records), cwd=tmp_path)


@pytest.mark.timeout(600)
def test_the_library_works_alone(python: Sequence[str], tmp_path: Path) -> None:
    """In an environment with its wheel only, the program of its description runs up to the missing network."""
    wheel = find_wheel("cni_invoker")
    run_program(*python, "-m", "pip", "install", "--quiet", str(wheel))
    (program,) = re.findall(r"^```python\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    file = tmp_path / "program.py"
    file.write_text(program.replace("/etc/cni/net.d", str(tmp_path)))
    with pytest.raises(FetchError, match=r'no net configuration with name "blue"'):
        run_program(*python, str(file))
    listed = run_program(*python, "-m", "pip", "list", "--format=freeze", "--local")
    assert {line.partition("==")[0] for line in listed.split()} <= {"cni-invoker", "pip", "setuptools"}


@pytest.mark.parametrize("name", OUR_PACKAGES)
def test_the_wheel_is_complete(name: str) -> None:
    """It has all modules and schemas of the checkout; the daemon's has units, settings and manual pages."""
    names = {*zipfile.ZipFile(find_wheel(name)).namelist()}
    packages = OUR_PACKAGES[name]
    assert {name.partition("/")[0] for name in names if ".d" not in name.partition("/")[0]} == packages
    expected = {
        str(Path(package) / path.relative_to(folder))
        for package in packages
        for folder in [_find_source(package)]
        for path in folder.rglob("*")
        if path.suffix in {".py", ".json", ".typed"}
    }
    assert expected <= names
    if name != "cni_bridge":
        return
    shared = {name.partition("/share/")[2] for name in names if "/share/" in name}
    assert {f"cni-bridge/systemd/{path.name}" for path in (ROOT / "docker/systemd").iterdir()} <= shared
    pages = {f"man/man1/{name}.1" for name in ("cni-bridge-serve", "cni-bridge-network-create", "cni-invoker-add")}
    assert {"cni-bridge/config.toml", *pages, *COMPLETIONS} <= shared
