# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One request to one plugin: its output, or an error that tells what happened."""

import asyncio
import json
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    BadResult,
    Limits,
    NetworkConfigurationList,
    PluginFailed,
    PluginNotStarted,
    PluginTimeout,
    Verb,
)
from cni_invoker.execution.execute import Output, execute
from cni_invoker.execution.request import Requests
from spec import JsonValue
from tests.plugins import FakePlugins

LIMITS = Limits(add_s=20.0, delete_s=20.0, grace_s=0.3, text_busy_s=5.0, stdout_bytes=1000, stderr_lines=3)


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """A directory for fake plugins."""
    return FakePlugins(tmp_path / "bin")


async def run(path: Path, *, limits: Limits = LIMITS, verb: Verb = Verb.ADD) -> Output:
    """Ask the plugin at `path` to attach something."""
    network = NetworkConfigurationList.from_document(
        {"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": path.name}]}
    )
    attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
    requests = Requests(plugin_dirs=(path.parent,), environment=os.environ)
    request = requests.attachment(verb, network, network.plugins[0], attachment, None)
    deadline = asyncio.get_running_loop().time() + limits.timeout_s(verb)
    return await execute(request, path, deadline=deadline, limits=limits)


async def failure(plugins: FakePlugins, **behaviour: JsonValue) -> PluginFailed:
    """Return the error of a plugin that behaves like this."""
    with pytest.raises(PluginFailed) as caught:
        await run(plugins.install("noop", ADD=behaviour))
    return caught.value


async def test_success(plugins: FakePlugins, caplog: pytest.LogCaptureFixture) -> None:
    """What a plugin prints is returned; its standard error is kept, and goes to the log line by line."""
    caplog.set_level(logging.DEBUG)
    path = plugins.install("noop", ADD={"stdout": '{"some": "result"}', "stderr": "one\ntwo\n"})
    output = await run(path)
    assert output == Output(
        plugin="noop",
        verb=Verb.ADD,
        stdout=b'{"some": "result"}',
        stdout_complete=True,
        stderr_tail=("one", "two"),
    )
    assert [(record.message, record.__dict__["line"]) for record in caplog.records] == [
        ("plugin.stderr", "one"),
        ("plugin.stderr", "two"),
    ]
    (command,) = plugins.commands
    assert (command.verb, command.environment["CNI_CONTAINERID"]) == ("ADD", "c1")
    assert command.stdin == {"type": "noop", "cniVersion": "1.0.0", "name": "net"}


async def test_the_plugins_own_error(plugins: FakePlugins) -> None:
    """Code, message and details are the plugin's; the last lines of its standard error are there too."""
    error = await failure(
        plugins, error={"code": 100, "msg": "banana", "details": "peel"}, stderr="one\ntwo\nthree\nfour\n"
    )
    assert (error.code, error.msg, error.details) == (100, "banana", "peel")
    assert (error.plugin, error.verb, error.exit_status, error.signal) == ("noop", "ADD", 1, None)
    assert error.stderr_tail == ("two", "three", "four")
    assert str(error).startswith('plugin type="noop" failed (add): banana; peel (code 100, exit status 1 after 0.')
    assert str(error).endswith(f"s, {plugins.directory}/noop); its last words on standard error: two | three | four")


async def test_an_error_after_a_result(plugins: FakePlugins) -> None:
    """The last error counts where a plugin printed a result, or lines of a log, before it."""
    error = await failure(
        plugins, stdout='log {x\n{"ips": []}{"code": 7, "msg": "first"} {"code": 5, "msg": "second"}\n', exit=2
    )
    assert (error.code, error.msg, error.exit_status) == (5, "second", 2)


@pytest.mark.parametrize(
    "line",
    [
        '{"level":"info","msg":"closing"}',
        '{"level":"error","ts":1.5,"code":3,"msg":"closing"}',
        '{"msg":"closing"}',
        '{"level":"info","msg":"a"}\n{"time":"now","msg":"b"}',
    ],
)
async def test_a_log_around_the_error(plugins: FakePlugins, line: str) -> None:
    """A line of a log in JSON has a message too; it hides no error, whether it comes before or after."""
    error = '{"code": 7, "msg": "banana", "details": "peel"}'
    for printed in (f"{line}\n{error}\n", f"{error}\n{line}\n", f"{line}\n{error}\n{line}\n"):
        told = await failure(plugins, stdout=printed, exit=1)
        assert (told.code, told.msg, told.details) == (7, "banana", "peel")
    alone = await failure(plugins, stdout=f"{line}\n", exit=1)
    assert alone.msg in {"closing", "b"}


async def test_an_error_among_many_braces(plugins: FakePlugins) -> None:
    """Braces in its own words, or in the log before it, hide no error."""
    told = await failure(plugins, error={"code": 7, "msg": "banana", "details": "{" * 300})
    assert told.details == "{" * 300
    said = await failure(plugins, stdout="x{" * 300 + '{"code": 5, "msg": "second"}', exit=1)
    assert (said.code, said.msg) == (5, "second")


@pytest.mark.parametrize("noise", ["{", "{}", '{"a":', '{"msg":"m"}'])
async def test_the_search_for_an_error_is_short(
    plugins: FakePlugins, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    """Whatever a plugin prints, the event loop tries to read no more than a hundred errors in it."""
    printed = noise * (65_536 // len(noise))
    tries = []

    class CountingDecoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[JsonValue, int]:
            tries.extend([idx] if s == printed else [])  # not those in schemas
            return super().raw_decode(s, idx)

    path = plugins.install("noop", ADD={"stdout": printed, "exit": 1})
    monkeypatch.setattr(json, "JSONDecoder", CountingDecoder)
    with pytest.raises(PluginFailed):
        await run(path, limits=replace(LIMITS, stdout_bytes=65_536))
    assert 0 < len(tries) <= 100


async def test_an_error_without_words(plugins: FakePlugins) -> None:
    """A plugin that ends with an error and says nothing is an error that says so."""
    error = await failure(plugins, stdout="", exit=1)
    assert (error.code, error.msg, error.details) == (999, "no error message", "")


async def test_an_error_in_other_words(plugins: FakePlugins) -> None:
    """What is printed instead of a CNI error is shown."""
    error = await failure(plugins, stdout="panic: runtime error\n", exit=2)
    assert error.msg == "it printed no CNI error, but: panic: runtime error"


@pytest.mark.parametrize("code", [None, 0, 7.0])
async def test_an_error_without_a_proper_code(plugins: FakePlugins, code: JsonValue) -> None:
    """An error that tells no code gets the one for internal errors."""
    error = await failure(plugins, error={"code": code, "msg": "m"})
    assert (error.code, error.msg) == (999, "m")


async def test_the_end_by_a_signal(plugins: FakePlugins) -> None:
    """A plugin that a signal ended is told by the signal's name."""
    error = await failure(plugins, stdout="", stderr="fatal error: out of memory\n", signal=signal.SIGSEGV)
    assert (error.signal, error.exit_status) == ("SIGSEGV", None)
    assert "killed by SIGSEGV" in str(error)
    assert "fatal error: out of memory" in str(error)


async def test_the_end_by_a_signal_without_a_name(plugins: FakePlugins) -> None:
    """Real-time signals have numbers only."""
    error = await failure(plugins, stdout="", signal=signal.SIGRTMIN + 1)
    assert error.signal == f"signal {signal.SIGRTMIN + 1}"


async def test_a_status_that_is_lost(plugins: FakePlugins) -> None:
    """Where SIGCHLD is ignored nobody learns how a plugin ended: nothing can be taken for a success."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        error = await failure(plugins)
        told = await failure(plugins, error={"code": 100, "msg": "banana"})
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (error.exit_status, error.signal, told.msg) == (None, None, "banana")
    assert "is not known (code 999, exit status lost, as where SIGCHLD is ignored, after" in str(error)


async def test_too_much_output(plugins: FakePlugins) -> None:
    """A plugin that floods its standard output has printed no result, but its standard error is shown."""
    output = await run(plugins.install("noop", ADD={"stdout_bytes": 5_000_000, "stderr_bytes": 5_000_000}))
    with pytest.raises(BadResult, match="more than 1000 bytes on standard output") as caught:
        output.parse(lambda stdout: stdout)
    assert caught.value.plugin == "noop"
    assert caught.value.stderr_tail == ("x" * 99,) * 3


async def test_a_very_long_line(plugins: FakePlugins) -> None:
    """An error is for reading: of a flood without an end of line it shows the end, and keeps the rest."""
    path = plugins.install("noop", ADD={"stderr": "x" * 60_000 + "last words", "exit": 1})
    with pytest.raises(PluginFailed, match=r"…x+last words$") as caught:
        await run(path, limits=Limits())
    assert len(str(caught.value)) < 5_000
    assert len(caught.value.stderr_tail[0]) > 50_000


async def test_an_error_after_too_much_output(plugins: FakePlugins) -> None:
    """A plugin that fails has failed, however much it printed."""
    error = await failure(plugins, stdout_bytes=5_000_000, exit=1)
    assert error.exit_status == 1


@pytest.mark.parametrize("ignore_sigterm", [False, True])
async def test_a_plugin_that_hangs(plugins: FakePlugins, ignore_sigterm: bool) -> None:
    """A plugin that does not end in time is killed; the error has the time, and what it said before."""
    path = plugins.install("noop", ADD={"sleep_s": 60, "stderr": "waiting\n", "ignore_sigterm": ignore_sigterm})
    with pytest.raises(PluginTimeout) as caught:
        await run(path, limits=Limits(add_s=1.0, grace_s=0.3))
    error = caught.value
    assert (error.plugin, error.verb, error.timeout_s, error.started) == ("noop", "ADD", 1.0, True)
    assert str(error) == (
        f'plugin type="noop" failed (add): it timed out after 1 s and was killed ({path}); '
        "its last words on standard error: waiting"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(plugins.commands[0].pid, 0)


async def test_what_a_plugin_leaves_behind(plugins: FakePlugins) -> None:
    """A plugin that leaves a process behind has ended, and its result counts."""
    path = plugins.install("noop", ADD={"leave_behind_s": 60, "result": {"cniVersion": "1.0.0"}})
    output = await run(path)
    assert output.stdout == b'{"cniVersion": "1.0.0"}\n'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no program", "Exec format error; neither a program"),
        (b"#!/no/such/interpreter\n", "No such file or directory; its interpreter /no/such/interpreter is missing"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "Exec format error"),
    ],
)
async def test_a_plugin_the_kernel_refuses(plugins: FakePlugins, content: bytes, reason: str) -> None:
    """What is no program for this machine is told at once, with its path."""
    path = plugins.install("noop")
    path.write_bytes(content)
    with pytest.raises(PluginNotStarted, match=reason) as caught:
        async with asyncio.timeout(LIMITS.text_busy_s / 2):
            await run(path, verb=Verb.DEL)
    assert str(caught.value).startswith(f'plugin type="noop" failed (delete): cannot execute {path}: ')
    assert caught.value.code == 5


async def test_a_plugin_that_is_just_being_copied(plugins: FakePlugins) -> None:
    """A file that is open for writing is tried again until it is closed."""
    path = plugins.install("noop")
    with path.open("ab") as copying:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(run(path))
            await asyncio.sleep(0.2)
            assert not running.done()
            assert plugins.commands == ()
            copying.close()
    assert running.result().stdout == b'{"cniVersion": "1.0.0"}\n'


async def test_a_plugin_that_is_being_copied_for_too_long(plugins: FakePlugins) -> None:
    """After some time a file that stays open for writing is an error, not a success without a result."""
    path = plugins.install("noop")
    with path.open("ab"), pytest.raises(PluginNotStarted, match="Text file busy"):
        await run(path, limits=Limits(text_busy_s=0.2))
    assert plugins.commands == ()
