# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Misbehaving plugins: each ends in a typed, readable error within the limits, and no process of it survives.

`test_process` and `test_execute` test one process and one execution. Here whole operations run, with well-behaved
plugins before and after the misbehaving one.
"""

import asyncio
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonValue
from cni_invoker import Attachment, CniError, Limits, NetworkConfigurationList, PluginFailed, Runtime
from cni_invoker.errors import BadResult, PluginNotFound, PluginNotStarted, PluginTimeout
from tests.plugins import FakePlugins

LIMITS: Final = Limits(add_s=20.0, delete_s=20.0, grace_s=0.3, text_busy_s=0.3)
IMPATIENT: Final = replace(LIMITS, add_s=0.5, delete_s=0.5)
"""For plugins that hang. Other plugins could exceed these limits on a busy machine."""
HANG_LIMIT_S: Final = 30.0
"""Ends a test in which a plugin that sleeps for 60 s is waited for. It measures nothing."""

ATTACHMENT: Final = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
NETWORK: Final = NetworkConfigurationList.from_document(
    {"name": "net", "cniVersion": "1.0.0", "plugins": [{"type": "good"}, {"type": "bad"}, {"type": "never"}]}
)
FLOOD: Final = 100_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Misbehaviour:
    """How a plugin misbehaves, and the error that ADD ends with.

    Attributes:
        behaviour: The behaviour, for `fake_plugin.py`.
        error: The class of the error.
        text: A part of its message.
    """

    behaviour: Mapping[str, JsonValue]
    error: type[CniError]
    text: str


LATE: Final = "timed out after 0.5 s and was killed"
NO_RESULT: Final = "bad CNI result"
MISBEHAVIOURS: Final[Mapping[str, Misbehaviour]] = {
    "hangs": Misbehaviour(behaviour={"sleep_s": 60}, error=PluginTimeout, text=LATE),
    "hangs and ignores SIGTERM": Misbehaviour(
        behaviour={"sleep_s": 60, "ignore_sigterm": True}, error=PluginTimeout, text=LATE
    ),
    "hangs, and so does its child": Misbehaviour(
        behaviour={"sleep_s": 60, "leave_behind_s": 60}, error=PluginTimeout, text=LATE
    ),
    "fails, and its child keeps the pipes": Misbehaviour(
        behaviour={"leave_behind_s": 60, "error": {"code": 100, "msg": "banana"}}, error=PluginFailed, text="banana"
    ),
    "does not read and hangs": Misbehaviour(
        behaviour={"read_stdin": False, "sleep_s": 60}, error=PluginTimeout, text=LATE
    ),
    "floods stdout": Misbehaviour(behaviour={"stdout_bytes": FLOOD}, error=BadResult, text="bytes on standard output"),
    "floods stdout and fails": Misbehaviour(
        behaviour={"stdout_bytes": FLOOD, "exit": 1}, error=PluginFailed, text="exit status 1"
    ),
    "floods stderr and fails": Misbehaviour(
        behaviour={"stderr_bytes": FLOOD, "error": {"code": 100, "msg": "banana"}}, error=PluginFailed, text="banana"
    ),
    "prints garbage": Misbehaviour(
        behaviour={"stdout": "\0\u001b[31mgarbage"},
        error=BadResult,
        text=NO_RESULT,
    ),
    "prints half a result": Misbehaviour(
        behaviour={"stdout": '{"cniVersion": "1.0.0", "ips": [{"addr'},
        error=BadResult,
        text=NO_RESULT,
    ),
    "prints half an error": Misbehaviour(
        behaviour={"stdout": '{"code": 7, "msg": "ban', "exit": 1},
        error=PluginFailed,
        text='it printed no CNI error, but: {"code": 7, "msg": "ban',
    ),
    "prints a result and an error": Misbehaviour(
        behaviour={"stdout": '{"cniVersion": "1.0.0", "ips": []}{"code": 7, "msg": "banana"}', "exit": 1},
        error=PluginFailed,
        text="banana (code 7,",
    ),
    "prints two results": Misbehaviour(
        behaviour={"stdout": '{"cniVersion": "1.0.0"}{"cniVersion": "1.0.0"}'},
        error=BadResult,
        text=NO_RESULT,
    ),
    "prints an error and ends well": Misbehaviour(
        behaviour={"stdout": '{"code": 7, "msg": "banana"}'},
        error=BadResult,
        text="it ended well, but printed an error: code 7: banana",
    ),
    "prints nothing": Misbehaviour(
        behaviour={"stdout": ""},
        error=BadResult,
        text="plugin returned no result",
    ),
    "is killed": Misbehaviour(
        behaviour={"stdout": "", "signal": 9, "stderr": "goroutine 1 [running]\n"},
        error=PluginFailed,
        text="killed by SIGKILL",
    ),
}


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """Three plugins; a test sets the behaviour of the second."""
    plugins = FakePlugins(tmp_path / "bin")
    for plugin_type in ("good", "bad", "never"):
        plugins.install(plugin_type)
    return plugins


async def failure(plugins: FakePlugins, limits: Limits = LIMITS) -> CniError:
    """Return the error that ADD ends with."""
    async with asyncio.timeout(HANG_LIMIT_S):
        with pytest.raises(CniError) as caught:
            await Runtime([plugins.directory], limits).add(NETWORK, ATTACHMENT)
    return caught.value


def readable(error: CniError, verb: str) -> str:
    """Return the message of an error; it must begin with plugin and verb, and must not be long."""
    text = str(error)
    assert text.startswith(f'plugin type="bad" failed ({verb}): ')
    assert len(text) < 10_000
    return text


async def wait_until_gone(processes: set[int]) -> None:
    """Wait until none of the processes runs."""
    async with asyncio.timeout(5):
        while any(is_alive(pid) for pid in processes):  # noqa: ASYNC110  # no event reports it
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def pids(plugins: FakePlugins) -> set[int]:
    """Return the process IDs of all plugins that have run, and of their children."""
    return {pid for command in plugins.commands for pid in (command.pid, command.orphaned_plugins) if pid}


@pytest.mark.parametrize("name", MISBEHAVIOURS)
async def test_a_misbehaving_plugin_fails_add(plugins: FakePlugins, name: str) -> None:
    """ADD raises the plugin's error, later plugins do not run, and no process survives."""
    wanted = MISBEHAVIOURS[name]
    plugins.install("bad", ADD=wanted.behaviour)
    error = await failure(plugins, IMPATIENT if wanted.error is PluginTimeout else LIMITS)
    assert type(error) is wanted.error
    assert wanted.text in readable(error, "add")
    assert plugins.calls == (("good", "ADD"), ("bad", "ADD"))
    await wait_until_gone(pids(plugins))


@pytest.mark.parametrize("name", [name for name, how in MISBEHAVIOURS.items() if how.error is BadResult])
async def test_delete_ignores_what_a_plugin_prints(plugins: FakePlugins, name: str) -> None:
    """DEL has no result: a missing, malformed or oversized one is ignored."""
    plugins.install("bad", DEL=MISBEHAVIOURS[name].behaviour)
    await Runtime([plugins.directory], LIMITS).delete(NETWORK, ATTACHMENT, None)
    assert plugins.calls == (("never", "DEL"), ("bad", "DEL"), ("good", "DEL"))


async def test_a_plugin_may_flood_standard_error(plugins: FakePlugins) -> None:
    """The size of standard error does not matter if the plugin exits with 0."""
    plugins.install("bad", ADD={"stderr_bytes": FLOOD})
    await Runtime([plugins.directory], LIMITS).add(NETWORK, ATTACHMENT)
    assert plugins.calls[-1] == ("never", "ADD")


async def test_a_child_that_keeps_the_outputs_open_is_killed(plugins: FakePlugins) -> None:
    """The result of the plugin counts although a child keeps its outputs open; the child is killed."""
    plugins.install("bad", ADD={"leave_behind_s": 60})
    await Runtime([plugins.directory], LIMITS).add(NETWORK, ATTACHMENT)
    assert plugins.calls[-1] == ("never", "ADD")
    orphaned_plugins = plugins.commands[1].orphaned_plugins
    assert orphaned_plugins is not None
    await wait_until_gone({orphaned_plugins})


async def test_a_plugin_without_execute_permission_is_not_found(plugins: FakePlugins) -> None:
    """The error names the path and the missing permission, and is raised before any plugin runs."""
    path = plugins.directory / "bad"
    path.chmod(0o644)
    error = await failure(plugins)
    assert isinstance(error, PluginNotFound)
    assert f"found but not executable: {path}" in str(error)
    assert plugins.calls == ()


def elf_header(machine: int, byte_order: str) -> bytes:
    """Return the first bytes of a 64-bit program for a machine (`e_machine` of elf(5))."""
    identification = b"\x7fELF" + bytes((2, 1 if byte_order == "<" else 2, 1)) + bytes(9)
    fields = (2, machine, 1, 0x400000, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    return identification + struct.pack(f"{byte_order}HHIQQQIHHHHHH", *fields) + bytes(56)


@pytest.mark.parametrize(
    ("machine", "byte_order"),
    [pytest.param(22, ">", id="s390x"), pytest.param(21, ">", id="ppc64"), pytest.param(243, "<", id="riscv")],
)
async def test_a_plugin_for_another_architecture_is_not_started(
    plugins: FakePlugins, machine: int, byte_order: str
) -> None:
    """The error names the path and "Exec format error"."""
    if byte_order == "<" and os.uname().machine == "riscv64":
        pytest.skip("the program is for riscv64, as this machine is: the kernel would execute it")
    path = plugins.directory / "bad"
    path.write_bytes(elf_header(machine, byte_order))
    error = await failure(plugins)
    assert isinstance(error, PluginNotStarted)
    text = readable(error, "add")
    assert str(path) in text
    assert "Exec format error" in text
    assert plugins.calls == (("good", "ADD"),)


async def test_a_plugin_that_stays_open_for_writing_is_not_started(plugins: FakePlugins) -> None:
    """A file that stays busy is an error after `text_busy_s`; ADD succeeds once the file is closed."""
    with (plugins.directory / "bad").open("ab"):
        error = await failure(plugins)
    assert isinstance(error, PluginNotStarted)
    assert "Text file busy" in readable(error, "add")
    await Runtime([plugins.directory], LIMITS).add(NETWORK, ATTACHMENT)


async def test_operations_that_wait_for_hanging_plugins_time_out_as_well(plugins: FakePlugins) -> None:
    """With three execution slots, nine operations time out after three executions: waiting has the same limit."""
    plugins.install("good", ADD={"sleep_s": 60, "ignore_sigterm": True, "leave_behind_s": 60})
    runtime = Runtime([plugins.directory], replace(IMPATIENT, executions=3, wait_s=IMPATIENT.add_s))

    async def add(number: int) -> None:
        with pytest.raises(PluginTimeout):
            await runtime.add(NETWORK, replace(ATTACHMENT, container_id=f"c{number}"))

    async with asyncio.timeout(HANG_LIMIT_S), asyncio.TaskGroup() as tasks:
        for number in range(9):
            tasks.create_task(add(number))
    assert len(plugins.commands) == 3
    await wait_until_gone(pids(plugins))
