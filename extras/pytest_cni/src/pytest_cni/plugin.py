# SPDX-License-Identifier: Apache-2.0
"""The options and fixtures of pytest-cni."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

import pytest

from cni_invoker import SUPPORTED_VERSIONS, JsonObject, Result
from pytest_cni.executable import CHECK_SINCE, GC_SINCE, Ended, Plugin, at_least

__all__ = ["Container"]

_CLAUSES: Final = Path(__file__).with_name("clauses.py")
_OPTION: Final = "--cni-plugin"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the two options."""
    group = parser.getgroup("cni", "CNI plugins")
    group.addoption(_OPTION, type=Path, metavar="EXECUTABLE", help="test this CNI plugin against the specification")
    group.addoption(
        "--cni-config",
        type=Path,
        metavar="FILE",
        help="a JSON object with the plugin's own configuration; cniVersion and name are filled in",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let the clauses be the tests, unless the command names others."""
    path: Path | None = config.getoption(_OPTION)
    if path is None:
        return
    if not path.is_file():
        raise pytest.UsageError(f"{_OPTION}: there is no file {path}")
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        config.args = [str(_CLAUSES)]


@pytest.fixture(scope="session")
def cni_plugin(request: pytest.FixtureRequest) -> Plugin:
    """The plugin that is tested, with the versions that it supports."""
    path: Path | None = request.config.getoption(_OPTION)
    if path is None:
        pytest.skip(f"no {_OPTION} is given")
    file: Path | None = request.config.getoption("--cni-config")
    try:
        configuration = {} if file is None else json.loads(file.read_bytes())
    except (OSError, ValueError) as exc:
        raise pytest.UsageError(f"--cni-config {file}: {exc}") from exc
    if not isinstance(configuration, dict):
        raise pytest.UsageError(f"--cni-config {file}: it is not a JSON object")
    ipam = configuration.get("ipam")
    is_ipam = isinstance(ipam, dict) and ipam.get("type") == path.name
    plugin = Plugin(path.absolute(), {"type": path.name, **configuration}, is_ipam)
    supported = plugin.execute("VERSION", SUPPORTED_VERSIONS[-1]).document().get("supportedVersions")
    known = [one for one in SUPPORTED_VERSIONS if isinstance(supported, list) and one in supported]
    if not known:
        pytest.fail(f"VERSION names none of the versions {', '.join(SUPPORTED_VERSIONS)}", pytrace=False)
    return replace(plugin, versions=tuple(known))


@pytest.fixture
def cni_version(cni_plugin: Plugin) -> str:
    """The newest version that the plugin supports."""
    return cni_plugin.versions[-1]


@dataclass(slots=True)
class Container:
    """A network namespace that the plugin attaches; the test ends with a DEL."""

    plugin: Plugin
    version: str
    number: int
    netns: str
    is_used: bool = field(default=False)

    @property
    def variables(self) -> dict[str, str]:
        """CNI's variables of it."""
        return {
            "CNI_CONTAINERID": f"pytest-cni-{self.number}",
            "CNI_NETNS": self.netns,
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": "IgnoreUnknown=1;PYTEST_CNI=1",
        }

    def execute(self, verb: str, *, without: str = "", after: Result | None = None) -> Ended:
        """Execute the plugin for it, without one of the variables, with a previous result."""
        self.is_used = True
        variables = {name: value for name, value in self.variables.items() if name != without}
        keys: JsonObject = {} if after is None else {"prevResult": after.document}
        return self.plugin.execute(verb, self.version, env=variables, keys=keys)

    def ip(self, *words: str) -> str:
        """Run `ip` inside, and return what it prints; empty if it fails."""
        command = ("nsenter", f"--net={self.netns}", "ip", *words)
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    def has_interface(self) -> bool:
        """Return whether the interface is inside."""
        return bool(self.ip("link", "show", "dev", "eth0"))


_NUMBERS: Final = count(1)


@pytest.fixture
def cni_container(cni_plugin: Plugin, cni_version: str) -> Iterator[Container]:
    """A container with a network namespace of its own; it needs root, or a user namespace."""
    command = ("unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 3600")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if process.stdout.readline() != "up\n":
            pytest.fail(
                f"no network namespace can be made: {process.stderr.read().strip()}; be root, "
                "or run `unshare --map-root-user --net --mount pytest …`",
                pytrace=False,
            )
        container = Container(cni_plugin, cni_version, next(_NUMBERS), f"/proc/{process.pid}/ns/net")
        try:
            yield container
        finally:
            if container.is_used:
                container.execute("DEL")
            process.kill()


@pytest.fixture
def needs_check(cni_version: str) -> None:
    """Skip the test of a plugin that is older than CHECK."""
    if not at_least(cni_version, CHECK_SINCE):
        pytest.skip(f"the plugin supports no version from {CHECK_SINCE} on, which has CHECK")


@pytest.fixture
def needs_gc(cni_version: str) -> None:
    """Skip the test of a plugin that is older than GC and STATUS."""
    if not at_least(cni_version, GC_SINCE):
        pytest.skip(f"the plugin does not support {GC_SINCE}, which has GC and STATUS")
