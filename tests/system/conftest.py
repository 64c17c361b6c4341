# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Labs for the system tests, with a guard that fails a test that leaves something behind.

`pytest --engine 28.5 --plugins 1.9` chooses the labs' engine and plugins; a test that depends on the engine uses the
fixture `engine`.
"""

import json
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final

import pytest

from cnm_bridge.core.settings import AttachOption
from tests.lab import DAEMON_COMMAND, MAIN_ENGINE, Engine, Lab, Plugins, find_engine, find_plugins, main_engine
from tests.skipped import report_not_tested
from tests.system.scene import Scene


@pytest.fixture(scope="session")
def daemon_command(request: pytest.FixtureRequest) -> Sequence[str]:
    """The command that starts the daemon under test."""
    attach: str = request.config.getoption("--attach")
    return (*DAEMON_COMMAND, "--attach", attach)


@pytest.fixture(scope="session")
def attach(request: pytest.FixtureRequest, engine: Engine) -> AttachOption:
    """The mode in which the daemon attaches a container on a single network with a list such as `bridge`."""
    is_fast = request.config.getoption("--attach", AttachOption.MOVE) == AttachOption.FAST
    return AttachOption.SANDBOX if is_fast and engine.version >= (28,) else AttachOption.MOVE


@pytest.fixture(scope="session")
def beside_ours(attach: AttachOption) -> Sequence[str]:
    """Options of `docker network connect` for a built-in network: its link must not be `eth0` if ours is already."""
    return () if attach is AttachOption.MOVE else ("--driver-opt", "com.docker.network.endpoint.ifname=eth9")


@pytest.fixture(scope="session")
def cleanup_limit_s() -> float:
    """How long the daemon may clean up after a test."""
    return 30.0


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The Docker engine of the labs, e.g. for `engine.version >= (28,)`."""
    return _chosen_engine(request.config)


@pytest.fixture(scope="session")
def sandbox_before_join(engine: Engine) -> None:
    """Skip the tests of plugins that run in the sandbox on engines that make it after Join."""
    if engine.version < (28,):
        pytest.skip(f"Docker Engine {engine.name} makes the sandbox after Join, so plugins cannot run in it")


@pytest.fixture(scope="session")
def cni_plugins(request: pytest.FixtureRequest) -> Plugins | None:
    """The CNI plugins of the labs; None stands for the machine's own."""
    wanted: str | None = request.config.getoption("--plugins", None)
    return find_plugins(wanted) if wanted else None


@pytest.fixture(scope="session")
def shared_lab(daemon_command: Sequence[str], engine: Engine, cni_plugins: Plugins | None) -> Iterator[Lab]:
    """A lab with dockerd and the daemon, for the whole session; tests request `lab` instead."""
    with _lab_with_daemon(daemon_command, engine, cni_plugins) as lab:
        yield lab


@pytest.fixture
def guard(
    request: pytest.FixtureRequest, cleanup_limit_s: float, attach: AttachOption
) -> Callable[[Lab], Iterator[Lab]]:
    """Yields a lab to the test, and fails the test if it leaves something behind or has moved links unnoticed."""
    return partial(_guard, test=request.node, cleanup_limit_s=cleanup_limit_s, attach=attach)


@pytest.fixture
def lab(shared_lab: Lab, guard: Callable[[Lab], Iterator[Lab]]) -> Iterator[Lab]:
    """A Docker host with the daemon, shared with other tests: use unique names, restart nothing."""
    yield from guard(shared_lab)


@pytest.fixture
def fresh_lab(
    daemon_command: Sequence[str],
    engine: Engine,
    cni_plugins: Plugins | None,
    guard: Callable[[Lab], Iterator[Lab]],
) -> Iterator[Lab]:
    """A Docker host with the daemon for one test, which may kill and restart everything.

    The guard checks at the end of the test: a test that stops the daemon must start it again and let it clean up.
    """
    with _lab_with_daemon(daemon_command, engine, cni_plugins) as lab:
        yield from guard(lab)


@pytest.fixture(scope="module")
def default_lab(engine: Engine, cni_plugins: Plugins | None) -> Iterator[Lab]:
    """A lab for the tests of a module, with a daemon in its default settings, whatever `--attach` of pytest is."""
    with _lab_with_daemon(DAEMON_COMMAND, engine, cni_plugins) as lab:
        yield lab


@pytest.fixture(scope="module")
def docker_lab(engine: Engine) -> Iterator[Lab]:
    """A lab with dockerd and without a daemon."""
    with Lab(engine=engine) as lab:
        yield lab


@pytest.fixture
def bare_lab() -> Iterator[Lab]:
    """A lab's namespaces, without Docker and without the daemon."""
    with Lab(dockerd=False) as lab:
        yield lab


@pytest.fixture
def scene(lab: Lab) -> Iterator[Scene]:
    """A scene on the shared lab."""
    with Scene(lab) as scene:
        yield scene


@pytest.fixture
def private_scene(fresh_lab: Lab) -> Iterator[Scene]:
    """A scene on a lab of its own."""
    with Scene(fresh_lab) as scene:
        yield scene


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of each log of the test's labs to the report of a failure."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        labs = {id(value): value for value in item.funcargs.values() if isinstance(value, Lab)}
        for found in labs.values():
            for process in found.processes:
                report.sections.append((f"log of {process.name}, process {process.pid}", process.tail()))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Mark the variants of a test as `long` that do not represent it.

    Raises:
        pytest.UsageError: A representative is not among the variants of its test.
    """
    missing: dict[str, set[object]] = {}
    for item in items:
        marker = item.get_closest_marker("representatives")
        if marker is None or not isinstance(item, pytest.Function):
            continue
        if not hasattr(item, "callspec"):
            raise pytest.UsageError(f"{item.nodeid} has no variants, and so no representatives")
        variant = item.callspec.id
        missing.setdefault(f"{item.path}::{item.originalname}", set(marker.args)).discard(variant)
        if variant not in marker.args:
            item.add_marker(pytest.mark.long)
    is_part = any("::" in argument for argument in config.args) or config.getoption("lf", default=False)
    for test, variants in missing.items():
        if variants and not is_part:
            raise pytest.UsageError(f"{test} has no variants {variants}, which its marker `representatives` names")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of what newer engines do, before its fixtures start an engine."""
    marker = item.get_closest_marker("engine_since")
    if marker is None:
        return
    since, what = marker.args
    engine = _chosen_engine(item.config)
    if engine.version < tuple(map(int, since.split("."))):
        pytest.skip(f"{since} is the first engine that {what}; this is {engine.name}")


@contextmanager
def _lab_with_daemon(command: Sequence[str], engine: Engine, plugins: Plugins | None) -> Iterator[Lab]:
    if os.geteuid() != 0:
        pytest.skip("a lab, which makes namespaces and mounts, needs root")
    with Lab(engine=engine, plugins=plugins) as lab:
        lab.start_daemon(command=command)
        yield lab


def _guard(lab: Lab, *, test: pytest.Item, cleanup_limit_s: float, attach: AttachOption) -> Iterator[Lab]:
    before, logged = lab.state(), {process: len(process.log()) for process in lab.processes}
    yield lab
    left = lab.wait_clean(before, cleanup_limit_s)
    log = "".join(process.log()[logged.get(process, 0) :] for process in lab.processes if "daemon" in process.name)
    if left:
        lab.remove_leftovers(before)
        pytest.fail(f"the test left behind:\n{left}", pytrace=False)
    _refuse_unnoticed_moves(log, test, attach)


_MOVED: Final = '"endpoint.moved_instead"'
_BY_DESIGN: Final = frozenset(
    {
        "the container has further networks",
        "the container runs already, and only Docker knows whether --link-local-ip is given",
        "the sandbox has a link that this driver made in it already",
        "the container's networks are not known: the Docker Engine is booting",
    }
)
"""Reasons to move a link that are no fault of a test; the last one follows a restart of dockerd."""


def _refuse_unnoticed_moves(log: str, test: pytest.Item, attach: AttachOption) -> None:
    """Fail an unmarked test in which links were moved because the daemon could not find out what it needed."""
    reasons = {str(json.loads(line)["reason"]) for line in log.splitlines() if _MOVED in line}
    doubts = "; ".join(sorted(reasons - _BY_DESIGN))
    if doubts and attach is not AttachOption.MOVE and test.get_closest_marker("moves") is None:
        pytest.fail(f"links were moved: {doubts}. If that is right, mark the test `moves`", pytrace=False)


def _chosen_engine(config: pytest.Config) -> Engine:
    requested: str | None = config.getoption("--engine", None)
    return find_engine(requested) if requested else main_engine()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report that the tests ran on the machine's engine because the main one could not be had."""
    if config.getoption("--engine", None) is None and not hasattr(config, "workerinput"):
        _report_missing_main_engine(terminalreporter)


def _report_missing_main_engine(terminalreporter: pytest.TerminalReporter) -> None:
    used = main_engine()
    if not used.is_main:
        missing = (
            f"Docker Engine {MAIN_ENGINE}, which most hosts have, is not here, so {used.name} was tested; "
            "`python -m tests.lab.fetch engines` fetches it"
        )
        terminalreporter.section("NOT THE MAIN ENGINE", red=True)
        terminalreporter.write_line(missing, red=True)
        report_not_tested(missing)
