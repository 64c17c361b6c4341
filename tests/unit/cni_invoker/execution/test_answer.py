# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""One request to one plugin returns its output, or raises an error that describes what happened."""

import asyncio
import json
import logging
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, Limits, PluginFailed, Verb
from cni_invoker.documents.request import Requests
from cni_invoker.errors import BadResult, PluginNotStarted, PluginTimeout
from cni_invoker.execution.answer import Output
from cni_invoker.execution.executor import Executor
from cni_invoker.execution.running_plugins import RunningPlugins
from tests.plugins import FakePlugins
from tests.records import list_of

LIMITS = Limits(add_s=20.0, delete_s=20.0, grace_s=0.3, stdout_bytes=1000, stderr_lines=3)
HANG_LIMIT_S = 30.0
"""Ends a test that hangs. It measures nothing."""


async def run(path: Path, *, limits: Limits = LIMITS, verb: Verb = Verb.ADD) -> Output:
    """Send the plugin at `path` a request for an attachment."""
    network = list_of({"type": path.name}, name="net")
    attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
    requests = Requests(plugin_dirs=(path.parent,), environment=os.environ)
    request = requests.attachment(verb, network, network.plugins[0], attachment, None)
    return await Executor((path.parent,), limits, None, RunningPlugins(None)).run(request)


async def failure(plugins: FakePlugins, **behaviour: JsonValue) -> PluginFailed:
    """Return the error of a plugin that behaves as given."""
    with pytest.raises(PluginFailed) as caught:
        await run(plugins.install("noop", ADD=behaviour))
    return caught.value


async def test_a_plugin_that_succeeds_returns_its_output(
    plugins: FakePlugins, caplog: pytest.LogCaptureFixture
) -> None:
    """Standard output is returned; standard error is kept, and logged line by line."""
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
    assert [(record.__dict__["event"], record.__dict__.get("line")) for record in caplog.records] == [
        ("plugin.stderr", "one"),
        ("plugin.stderr", "two"),
        ("plugin.executed", None),
    ]
    (command,) = plugins.commands
    assert (command.verb, command.environment["CNI_CONTAINERID"]) == ("ADD", "c1")
    assert command.stdin == {"type": "noop", "cniVersion": "1.0.0", "name": "net"}


async def test_the_error_of_a_plugin_is_raised(plugins: FakePlugins) -> None:
    """Code, message and details are the plugin's; the last lines of standard error are included."""
    error = await failure(
        plugins, error={"code": 100, "msg": "banana", "details": "peel"}, stderr="one\ntwo\nthree\nfour\n"
    )
    assert (error.code, error.msg, error.details) == (100, "banana", "peel")
    assert (error.plugin, error.verb, error.exit_status, error.signal) == ("noop", "ADD", 1, None)
    assert error.stderr_tail == ("two", "three", "four")
    assert str(error).startswith('plugin type="noop" failed (add): banana; peel (code 100, exit status 1 after 0.')
    assert str(error).endswith(
        f"s, {plugins.directory}/noop, network net, container c1); standard error ends with: two | three | four"
    )


async def test_the_last_error_printed_counts(plugins: FakePlugins) -> None:
    """A result or log lines before it are ignored."""
    error = await failure(
        plugins, stdout='log {x\n{"ips": []}{"code": 7, "msg": "first"} {"code": 5, "msg": "second"}\n', exit=2
    )
    assert (error.code, error.msg, error.exit_status) == (5, "second", 2)


@pytest.mark.parametrize(
    "line",
    [
        '{"level":"info","msg":"closing"}',
        '{"msg":"closing"}',
        '{"level":"info","msg":"a"}\n{"time":"now","msg":"b"}',
    ],
)
async def test_json_log_lines_do_not_hide_the_error(plugins: FakePlugins, line: str) -> None:
    """A JSON log line has a message too, but is ignored before and after the error."""
    document = '{"code": 7, "msg": "banana", "details": "peel"}'
    for printed in (f"{line}\n{document}\n", f"{document}\n{line}\n", f"{line}\n{document}\n{line}\n"):
        error = await failure(plugins, stdout=printed, exit=1)
        assert (error.code, error.msg, error.details) == (7, "banana", "peel")
    alone = await failure(plugins, stdout=f"{line}\n", exit=1)
    assert alone.msg in {"closing", "b"}


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ('{"cniVersion":"1.0.0","code":7,"msg":"banana"}', '{"code":5,"msg":"closing"}'),
        ('{"code":7,"msg":"banana"}', '{"level":"info","code":5,"msg":"closing"}'),
        ('{"code":7,"msg":"banana"}', '{"level":"info","cause":{"code":5,"msg":"closing"}}'),
        ('{"code":7,"msg":"banana","cause":{"code":5,"msg":"closing"}}', ""),
    ],
)
async def test_a_code_elsewhere_does_not_hide_the_error(plugins: FakePlugins, error: str, line: str) -> None:
    """Log lines and what is inside an object may have a code too."""
    for printed in (f"{error}\n{line}\n", f"{line}\n{error}\n"):
        found = await failure(plugins, stdout=printed, exit=1)
        assert (found.code, found.msg) == (7, "banana")


async def test_braces_do_not_hide_the_error(plugins: FakePlugins) -> None:
    """Braces in the details, or in log lines before the error, are not taken for errors."""
    error = await failure(plugins, error={"code": 7, "msg": "banana", "details": "{" * 300})
    assert error.details == "{" * 300
    last = await failure(plugins, stdout="x{" * 300 + '{"code": 5, "msg": "second"}', exit=1)
    assert (last.code, last.msg) == (5, "second")


@pytest.mark.parametrize("noise", ["{", "{}", '{"a":', '{"msg":"m"}'])
async def test_the_search_for_an_error_is_bounded(
    plugins: FakePlugins, monkeypatch: pytest.MonkeyPatch, noise: str
) -> None:
    """At most a hundred positions of the output are parsed, so that the event loop is not blocked."""
    assert 0 < await count_tries(plugins, monkeypatch, noise * (65_536 // len(noise))) <= 100


async def test_what_is_inside_an_object_is_not_parsed_again(
    plugins: FakePlugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long result would be parsed a hundred times."""
    assert await count_tries(plugins, monkeypatch, f'{{"ips": [{"{}, " * 10_000}{{}}]}}') == 1


async def count_tries(plugins: FakePlugins, monkeypatch: pytest.MonkeyPatch, printed: str) -> int:
    """Return at how many positions the output of a plugin that fails is parsed."""
    tries = []

    class CountingDecoder(json.JSONDecoder):
        def raw_decode(self, s: str, idx: int = 0) -> tuple[JsonValue, int]:
            tries.extend([idx] if s == printed else [])  # ignores the schemas
            return super().raw_decode(s, idx)

    path = plugins.install("noop", ADD={"stdout": printed, "exit": 1})
    monkeypatch.setattr(json, "JSONDecoder", CountingDecoder)
    with pytest.raises(PluginFailed):
        await run(path, limits=replace(LIMITS, stdout_bytes=65_536))
    return len(tries)


async def test_a_failed_plugin_without_a_cni_error(plugins: FakePlugins) -> None:
    """The message of the error shows what the plugin printed instead."""
    error = await failure(plugins, stdout="panic: runtime error\n", exit=2)
    assert error.msg == (
        "netplugin failed but error parsing its diagnostic message: it printed no CNI error, but: panic: runtime error"
    )


@pytest.mark.parametrize("stdout", ["", '{"code": 999, "msg": ""}'])
async def test_a_failed_plugin_that_wrote_to_standard_error_only(plugins: FakePlugins, stdout: str) -> None:
    """The message is what the plugin wrote, in libcni's words, and the text has it once."""
    error = await failure(plugins, stdout=stdout, stderr="cannot open /dev/net/tun\n", exit=1)
    assert error.msg == "netplugin failed: cannot open /dev/net/tun"
    assert str(error).count("cannot open") == 1


@pytest.mark.parametrize("answer", [{"stdout": ""}, {"stdout": "hunter2"}, {"stdout": '{"code": 999, "msg": ""}'}])
async def test_output_that_may_be_secret_is_logged_only(
    plugins: FakePlugins, caplog: pytest.LogCaptureFixture, answer: JsonObject
) -> None:
    """With no line of standard error allowed, an error quotes no output, and says where it is."""
    path = plugins.install("noop", ADD={**answer, "stderr": "one\nhunter2\n", "exit": 1})
    with caplog.at_level(logging.DEBUG), pytest.raises(PluginFailed) as caught:
        await run(path, limits=replace(LIMITS, stderr_lines=0))
    assert "hunter2" not in str(caught.value)
    assert "exit status 1; its output is logged at level debug" in caught.value.msg
    assert caught.value.stderr_tail == ()
    assert {"one", "hunter2"} <= {record.__dict__.get("line") for record in caplog.records}
    assert {record.levelname for record in caplog.records} == {"DEBUG"}


async def test_an_error_of_a_plugin_is_shown_without_its_output(plugins: FakePlugins) -> None:
    """Its message is for users."""
    path = plugins.install("noop", ADD={"error": {"code": 7, "msg": "banana"}, "stderr": "hunter2"})
    with pytest.raises(PluginFailed, match="banana") as caught:
        await run(path, limits=replace(LIMITS, stderr_lines=0))
    assert "hunter2" not in str(caught.value)


async def test_the_end_of_a_large_output_is_logged(plugins: FakePlugins, caplog: pytest.LogCaptureFixture) -> None:
    """All of it would block the event loop while it is decoded."""
    path = plugins.install("noop", ADD={"stdout": 300_000 * "x" + "end", "exit": 1})
    with caplog.at_level(logging.DEBUG), pytest.raises(PluginFailed):
        await run(path, limits=replace(LIMITS, stdout_bytes=1 << 20))
    (line,) = (record.__dict__["line"] for record in caplog.records if record.__dict__["event"] == "plugin.stdout")
    assert line.endswith("xend")
    assert len(line) == 1 << 16


async def test_an_error_shows_as_many_lines_as_its_caller_wants(plugins: FakePlugins) -> None:
    """That may be more than are logged."""
    path = plugins.install("noop", ADD={"stderr": "\n".join(map(str, range(300))), "exit": 1})
    with pytest.raises(PluginFailed) as caught:
        await run(path, limits=replace(LIMITS, stderr_lines=150))
    assert caught.value.stderr_tail == tuple(map(str, range(150, 300)))


@pytest.mark.parametrize("msg", ["", ', "msg": null'])
async def test_an_error_without_a_message_keeps_its_code(plugins: FakePlugins, msg: str) -> None:
    """The code decides what happens next: 3 means that the plugin has nothing of the container."""
    error = await failure(plugins, stdout=f'{{"code": 3, "details": "peel"{msg}}}', exit=1)
    assert (error.code, error.details) == (3, "peel")
    assert error.msg == "netplugin failed with no error message: exit status 1"


@pytest.mark.parametrize("code", [None, 0, 7.0])
async def test_an_error_without_a_valid_code_is_an_internal_error(plugins: FakePlugins, code: JsonValue) -> None:
    """A missing or zero code, or one written as a decimal, becomes 999."""
    error = await failure(plugins, error={"code": code, "msg": "m"})
    assert (error.code, error.msg) == (999, "m")


async def test_a_plugin_killed_by_a_signal(plugins: FakePlugins) -> None:
    """The error names the signal, and shows standard error."""
    error = await failure(plugins, stdout="", stderr="fatal error: out of memory\n", signal=signal.SIGSEGV)
    assert (error.signal, error.exit_status) == ("SIGSEGV", None)
    assert "killed by SIGSEGV" in str(error)
    assert "fatal error: out of memory" in str(error)
    assert error.crash == "SIGSEGV"


@pytest.mark.parametrize(
    ("behaviour", "crash"),
    [
        ({"stdout": "", "exit": 2}, "exit status 2"),
        ({"stdout": "", "exit": 1}, None),
        ({"stdout": '{"code": 100, "msg": "no"}', "exit": 2}, None),
    ],
)
async def test_a_crash_of_a_go_program(
    plugins: FakePlugins, behaviour: dict[str, JsonValue], crash: str | None
) -> None:
    """Its status distinguishes it from an error that a plugin reports."""
    assert (await failure(plugins, stderr="panic: nil\n\ngoroutine 1", **behaviour)).crash == crash


async def test_a_plugin_killed_by_a_real_time_signal(plugins: FakePlugins) -> None:
    """Real-time signals have no names, so the error has the number."""
    error = await failure(plugins, stdout="", signal=signal.SIGRTMIN + 1)
    assert error.signal == f"signal {signal.SIGRTMIN + 1}"


async def test_a_lost_exit_status_is_a_failure(plugins: FakePlugins) -> None:
    """If SIGCHLD is ignored, the kernel discards the exit status, so that success is unknown."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        error = await failure(plugins)
        reported = await failure(plugins, error={"code": 100, "msg": "banana"})
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (error.exit_status, error.signal, reported.msg) == (None, None, "banana")
    assert "is not known (code 999, exit status unknown (is SIGCHLD ignored?) after" in str(error)


async def test_too_much_output_is_no_result(plugins: FakePlugins) -> None:
    """A plugin that exceeds the limit of standard output has no result; the end of its standard error is shown."""
    output = await run(plugins.install("noop", ADD={"stdout_bytes": 5_000_000, "stderr_bytes": 5_000_000}))
    message = r'^plugin type="noop" failed \(add\): bad CNI result: more than 1000 bytes on standard output'
    with pytest.raises(BadResult, match=message) as caught:
        output.parse(lambda stdout: stdout)
    assert str(caught.value).endswith(f"standard error ends with: {' | '.join(('x' * 99,) * 3)}")


async def test_a_long_line_is_shortened_in_the_message(plugins: FakePlugins) -> None:
    """The message of the error shows the end of the line; `stderr_tail` has more of it."""
    path = plugins.install("noop", ADD={"stderr": "x" * 60_000 + "last words", "exit": 1})
    with pytest.raises(PluginFailed, match=r"…x+last words$") as caught:
        await run(path, limits=Limits())
    assert len(str(caught.value)) < 5_000
    assert len(caught.value.stderr_tail[0]) > 50_000


async def test_a_failed_plugin_with_too_much_output(plugins: FakePlugins) -> None:
    """A plugin that exits with an error has failed, however much it printed."""
    error = await failure(plugins, stdout_bytes=5_000_000, exit=1)
    assert error.exit_status == 1


@pytest.mark.parametrize("ignore_sigterm", [False, True])
async def test_a_plugin_that_hangs_is_killed(plugins: FakePlugins, ignore_sigterm: bool) -> None:
    """The error has the time limit and the plugin's standard error; the process is reaped."""
    path = plugins.install("noop", ADD={"sleep_s": 60, "stderr": "waiting\n", "ignore_sigterm": ignore_sigterm})
    with pytest.raises(PluginTimeout) as caught:
        await run(path, limits=Limits(add_s=1.0, grace_s=0.3))
    error = caught.value
    assert (error.plugin, error.timeout_s, error.started) == ("noop", 1.0, True)
    assert str(error) == (
        f'plugin type="noop" failed (add): it timed out after 1 s and was killed ({path}); '
        "standard error ends with: waiting"
    )
    with pytest.raises(ProcessLookupError):
        os.kill(plugins.commands[0].pid, 0)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no program", "Exec format error; neither a program"),
        (b"#!/no/such/interpreter\n", "No such file or directory; its interpreter is missing: #!/no/such/interpreter$"),
        (b"\x7fELF\x02\x01\x01" + bytes(100), "Exec format error"),
    ],
)
async def test_a_plugin_that_cannot_be_executed_fails_at_once(
    plugins: FakePlugins, content: bytes, reason: str
) -> None:
    """The error names the path and the reason."""
    path = plugins.install("noop")
    path.write_bytes(content)
    with pytest.raises(PluginNotStarted, match=reason) as caught:
        async with asyncio.timeout(HANG_LIMIT_S):
            await run(path, verb=Verb.DEL)
    assert str(caught.value).startswith(f'plugin type="noop" failed (delete): cannot execute {path}: ')
    assert caught.value.code == 5


async def test_a_file_that_is_being_written_is_an_error(plugins: FakePlugins) -> None:
    """It is not a success without a result."""
    path = plugins.install("noop")
    with path.open("ab"), pytest.raises(PluginNotStarted, match="Text file busy"):
        await run(path)
    assert plugins.commands == ()
