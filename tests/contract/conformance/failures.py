# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases about plugins that fail, with or without a message, hang, or cannot be started."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonValue, find_str, get_int, get_object, get_str, get_strings, render_json
from cni_invoker import Attachment, PluginExec, PluginFailed, run_preflight
from cni_invoker.documents.request import Request
from cni_invoker.documents.versions import Verb
from cni_invoker.errors import BadResult, PluginNotStarted, PluginTimeout
from cni_invoker.execution.answer import Output
from cni_invoker.execution.executor import Executor
from cni_invoker.execution.running_plugins import RunningPlugins
from tests.contract.conformance.case import Case
from tests.contract.conformance.runner import Runner
from tests.contract.conformance.scene import ATTACHMENT, LIMITS, Scene, network

__all__ = ["RUNNERS"]

FOO: Final = network({"type": "foo"})
HANG_LIMIT_S: Final = 25.0
"""Ends a case that hangs; plugins that are not killed sleep for longer."""


class _At(PluginExec):
    """Executes one file, whatever the plugin's type is."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self, plugin_type: str, directories: Sequence[Path]) -> Path:  # noqa: ARG002  # the interface's
        return self._path


def execute(request: Request, path: Path) -> Awaitable[Output]:
    """Send the plugin at `path` a request."""
    return Executor((), LIMITS, None, RunningPlugins(None), _At(path)).run(request)


async def failure(case: Case, scene: Scene, **further: JsonValue) -> PluginFailed:
    """Return the error of a plugin that behaves as the case says, and in `further` ways."""
    stdout = case.plugin.get("stdout", "")
    text = stdout if isinstance(stdout, str) else render_json(stdout).decode()
    behaviour = {key: case.plugin[key] for key in ("stderr", "error", "exit") if key in case.plugin}
    scene.install("foo", ADD={**behaviour, "stdout": text, **further})
    with pytest.raises(PluginFailed) as caught:
        await scene.runtime().add(FOO, ATTACHMENT)
    return caught.value


async def own_words(case: Case, scene: Scene) -> None:
    """Code and message are the plugin's."""
    error = await failure(case, scene)
    assert (error.code, error.msg) == (case.expect["code"], case.expect["message"])


async def no_words(case: Case, scene: Scene) -> None:
    """The error of a plugin without output has its exit status."""
    error = await failure(case, scene)
    assert error.exit_status == 1
    case.expects("error_text", str(error))


async def not_there(case: Case, _: Scene) -> None:
    """The error of a program that cannot be started has its path."""
    path = Path(get_str(case.inputs, "path"))
    request = Request(plugin="foo", verb=Verb.ADD, environment={"CNI_CONTAINERID": "c1"}, stdin=b"{}")
    with pytest.raises(PluginNotStarted) as caught:
        await execute(request, path)
    case.expects("error_contains", str(caught.value))


async def last_error(case: Case, scene: Scene) -> None:
    """The last printed error counts, whatever was printed before it."""
    assert case.expect["improved"] == "parse the last JSON object that has code+msg"
    error = await failure(case, scene)
    assert (error.code, error.msg) == (100, "x")


async def last_words(case: Case, scene: Scene) -> None:
    """The standard error of a plugin that printed a CNI error is also shown and logged."""
    logged: list[tuple[str, object]] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append((record.__dict__["event"], record.__dict__.get("line")))  # type: ignore[method-assign]
    logger = logging.getLogger("cni_invoker.execution.answer")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        error = await failure(case, scene)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert (error.code, error.msg, error.details) == (5, "m", "d")
    assert error.stderr_tail == ("panic trace",)
    assert str(error).endswith("panic trace")
    assert [line for event, line in logged if event == "plugin.stderr"] == ["panic trace"]


async def try_later(case: Case, scene: Scene) -> None:
    """After the error "try again later" ADD is repeated a few times, with pauses, and then the error is reported.

    DEL runs before each repetition: there are no two ADDs of one attachment without a DEL between.
    """
    assert get_str(case.expect, "improved").startswith("bounded retry with back-off")
    later: JsonValue = {"error": get_object(case.plugin, "error")}
    scene.install("foo", ADD=[later, later, {}])
    loop = asyncio.get_running_loop()
    started = loop.time()
    runtime = scene.runtime(replace(LIMITS, retry_pauses_s=(0.1, 0.2)))
    await runtime.add(FOO, ATTACHMENT)
    assert loop.time() - started > 0.3
    assert scene.calls == (("foo", "ADD"), ("foo", "DEL")) * 2 + (("foo", "ADD"),)
    scene.install("foo", ADD=later)
    with pytest.raises(PluginFailed) as caught:
        await runtime.add(FOO, ATTACHMENT)
    assert (caught.value.code, caught.value.msg) == (11, "try later")
    assert [verb for _, verb in scene.calls].count("ADD") == 6


async def no_result(case: Case, scene: Scene) -> None:
    """A plugin that succeeds without a result has failed, and the error names it."""
    scene.install("foo", ADD={"stdout": case.plugin["stdout"]})
    with pytest.raises(BadResult) as caught:
        await scene.runtime().add(FOO, ATTACHMENT)
    assert caught.value.plugin == "foo"
    case.expects("error", str(caught.value))


async def killed(case: Case, scene: Scene) -> None:
    """The error of a plugin that a signal ended has the signal's name and the plugin's standard error."""
    number = get_int(case.plugin, "killed_by_signal")
    error = await failure(case, scene, signal=number)
    assert error.signal == signal.Signals(number).name == "SIGSEGV"
    assert "killed by SIGSEGV" in str(error)
    assert get_str(case.plugin, "stderr") in str(error)


async def stdio(case: Case, scene: Scene) -> None:
    """Input and output are passed unchanged; the standard error of a successful plugin is kept."""
    assert case.expect["stdin_bytes_exact"] is case.expect["stdout_returned"] is True
    stdin = b" " + render_json(get_object(case.inputs, "stdin")) + b"\n\n"
    stdout = render_json(get_object(case.plugin, "stdout")).decode()
    stderr = get_str(case.plugin, "stderr")
    seen = scene.directory / "stdin"
    path = scene.script("foo", f"cat >{seen}", f"printf %s '{stdout}'", f"echo '{stderr}' >&2")
    request = Request(plugin="foo", verb=Verb.ADD, environment={**os.environ, "CNI_CONTAINERID": "c1"}, stdin=stdin)
    output = await execute(request, path)
    assert seen.read_bytes() == stdin
    assert output.stdout == stdout.encode()
    assert output.stderr_tail == (stderr,)


async def hanging(case: Case, scene: Scene) -> None:
    """For every verb a hanging plugin is killed at its deadline; the error has plugin, verb and limit."""
    assert get_str(case.expect, "improved").startswith("ErrTimeout naming plugin, verb and deadline")
    deadline_s = get_int(case.inputs, "deadline_s") / 2
    sleeping: JsonValue = {"sleep_s": case.plugin["sleep_s"]}
    limits = replace(
        LIMITS, add_s=deadline_s, delete_s=deadline_s, check_s=deadline_s, version_s=deadline_s, executions=8
    )
    runtime = scene.runtime(limits)
    scene.install("foo", ADD=sleeping, DEL=sleeping, CHECK=sleeping)
    scene.install("mute", VERSION=sleeping)
    scene.install("bar")
    chain = network({"type": "foo"}, {"type": "bar"})

    def own(container_id: str) -> Attachment:
        return replace(ATTACHMENT, container_id=container_id)

    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "ADD": lambda: runtime.add(FOO, own("c1")),
        "DEL": lambda: runtime.delete(FOO, own("c2"), None),
        "CHECK": lambda: runtime.check(FOO, own("c3"), None),
        "VERSION": lambda: runtime.version("mute"),
        "list ADD": lambda: runtime.add(chain, own("c4")),
        "list DEL": lambda: runtime.delete(chain, own("c5"), None),
        "list CHECK": lambda: runtime.check(chain, own("c6"), None),
    }
    assert {*operations, "VALIDATE"} == set(get_strings(case.inputs, "verbs"))

    async def is_killed(name: str) -> None:
        with pytest.raises(PluginTimeout) as caught:
            await operations[name]()
        assert (caught.value.verb, caught.value.timeout_s) == (name.rpartition(" ")[2], deadline_s)
        assert caught.value.plugin == ("mute" if name == "VERSION" else "foo")

    async with asyncio.timeout(HANG_LIMIT_S), asyncio.TaskGroup() as tasks:
        for name in operations:
            tasks.create_task(is_killed(name))
    report = await run_preflight(runtime, network({"type": "mute"}))
    assert f"after {deadline_s:g} s" in " ".join(report.all_warnings)  # libcni's ADD does not use VERSION
    for command in scene.plugins.commands:
        await scene.wait_until_gone(command.pid)


async def grandchild(case: Case, scene: Scene) -> None:
    """A process that a plugin leaves behind with its outputs open is killed, and DEL has a limit of its own."""
    assert find_str(case.expect, "improved") is not None
    deadline_s = get_int(case.inputs, "deadline_s")
    scene.install("foo", ADD={"leave_behind_s": 60, "sleep_s": 60}, DEL={"sleep_s": 0.5})
    runtime = scene.runtime(replace(LIMITS, add_s=deadline_s / 2, delete_s=deadline_s))
    async with asyncio.timeout(HANG_LIMIT_S):
        with pytest.raises(PluginTimeout):
            await runtime.add(FOO, ATTACHMENT)
    await runtime.delete(FOO, ATTACHMENT, None)
    left_behind = scene.commands[0].orphaned_plugins
    assert left_behind is not None
    await scene.wait_until_gone(left_behind)


async def text_busy(case: Case, scene: Scene) -> None:
    """A plugin that is being written is started when the writing ends; if it does not end in time, that is an error."""
    assert get_str(case.expect, "improved") == "fresh spawn per attempt, typed error when exhausted"
    path = scene.plugins.install("foo", ADD={"result": {"ips": [{"address": "10.1.2.3/24"}]}})
    with path.open("ab"), pytest.raises(PluginNotStarted, match="Text file busy"):
        await scene.runtime(replace(LIMITS, text_busy_s=0.2)).add(FOO, ATTACHMENT)
    with path.open("ab") as copying:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(scene.runtime().add(FOO, ATTACHMENT))
            await asyncio.sleep(0.2)
            assert scene.calls == ()
            copying.close()
    assert [str(ip.address) for ip in running.result().ips] == ["10.1.2.3/24"]


RUNNERS: Final[Mapping[str, Runner]] = {
    "err-001": own_words,
    "err-003": no_words,
    "err-004": not_there,
    "err-006": last_error,
    "err-007": last_words,
    "err-009": try_later,
    "err-010": no_result,
    "err-012": killed,
    "io-001": stdio,
    "io-002": hanging,
    "io-003": grandchild,
    "io-004": text_busy,
}
