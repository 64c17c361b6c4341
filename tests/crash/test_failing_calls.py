# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""System calls of the daemon fail, one in each life of an endpoint; afterwards nothing is left and nothing is lost.

strace makes the call fail that has a certain number among those of its kind, in each thread of the daemon. Plugins are
left alone. A random choice is tried, which CNI_BRIDGE_SEED repeats, and everything with CNI_BRIDGE_CRASH=wide.
"""

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cnm_bridge.core.settings import Settings
from tests.crash.extent import WIDE
from tests.crash.host import Host
from tests.crash.lists import LISTS
from tests.lab import DAEMON_COMMAND, Lab, wait_until
from tests.soak.records import read_records

pytestmark = pytest.mark.timeout(3600)

SEED: Final = int(os.environ.get("CNI_BRIDGE_SEED") or random.SystemRandom().randrange(10**6))

FAILURES: Final = {
    "openat": ("EMFILE", "EIO"),
    "read": ("EIO",),
    "write": ("ENOSPC", "EIO"),
    "fdatasync": ("EIO", "ENOSPC"),
    "unlink": ("EROFS",),
    "mount": ("EIO",),
    "umount2": ("EIO",),
    "unshare": ("ENOSPC",),
    "socket": ("EMFILE",),
    "accept4": ("EMFILE",),
    "pipe2": ("EMFILE",),
    "sendto": ("EIO",),
}
"""The errors of each call."""

_CHOICE: Final = 6
"""How many failures are tried."""
_TEARDOWN_S: Final = 3.0
"""How long the teardown may go on while calls fail: for its first attempt, and a second one."""
_TRACE: Final = "/run/strace"


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed: make setup")
def test_failing_system_calls(lab: Lab) -> None:
    """The daemon does not end, what a failed call leaves is removed, and the neighbour keeps everything."""
    chance = random.Random(SEED)  # noqa: S311 - it must be repeatable, not secret
    print(f"to repeat this choice: CNI_BRIDGE_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    with Host(lab, LISTS["bridge"], command=DAEMON_COMMAND) as host:
        counts = _count(host)
        assert set(counts) == set(FAILURES), "some of these calls are not made"
        cells = [
            (call, error, number)
            for call, errors in FAILURES.items()
            for error in errors
            for number in range(1, 1 + counts[call])
        ]
        for call, error, number in cells if WIDE else chance.sample(cells, _CHOICE):
            _try(host, call, error, number)


def _count(host: Host) -> Counter[str]:
    """Return how many calls of each kind a thread of the daemon makes at most."""
    before = host.lab.state()
    with _strace(host, "-e", f"trace={','.join(FAILURES)}"):
        _live(host)
        assert host.lab.wait_clean(before) == ""
    counts: Counter[str] = Counter()
    for (_, call), count in Counter(_calls(host.lab.read(_TRACE))).items():
        counts[call] = max(counts[call], count)
    return counts


def _calls(trace: str) -> Iterator[tuple[str, str]]:
    """Yield the thread and the name of each call, from lines such as `17 openat(AT_FDCWD, …`."""
    for line in trace.splitlines():
        thread, _, rest = line.partition(" ")
        call, opened, _ = rest.strip().partition("(")
        if opened and call.isidentifier():
            yield thread, call


def _try(host: Host, call: str, error: str, number: int) -> None:
    """Let the call of this number fail in one life of an endpoint."""
    where = f"{call} number {number} failed with {error}"
    before = host.lab.state()
    with _strace(host, "-e", f"trace={call}", "-e", f"inject={call}:error={error}:when={number}"):
        _live(host)
        host.lab.wait_clean(before, timeout_s=_TEARDOWN_S)
    daemon = host.lab.daemon
    assert daemon is not None
    assert daemon.returncode is None, f"{where}: the daemon has ended:\n{daemon.tail()}"
    directory = host.lab.path(str(Settings().state_dir))
    for record in read_records(directory).endpoints:
        if record.id != host.neighbour.id and record.phase != "deleting":  # Docker has it: the user removes it
            body = {"NetworkID": record.network_id, "EndpointID": record.id}
            host.call("Leave", {**body})
            assert host.call("DeleteEndpoint", {**body}) == {}, where
    host.assert_clean(before, f"{where}; {host.lab.read(_TRACE)[-300:]}")
    host.lab.restart_daemon(signal.SIGKILL)  # what was refused because it could not be synced may be on the disk
    wait_until(
        lambda: [record.id for record in read_records(directory).endpoints] == [host.neighbour.id],
        f"{where}: no record but the neighbour's",
    )
    host.neighbour.assert_intact(f"{where}, after a restart")


def _live(host: Host) -> None:
    """Make the calls of an endpoint's life, as libnetwork makes them if one of them fails."""
    endpoint = host.endpoint()
    if "Interface" not in (endpoint.create() or {}):
        return
    if "InterfaceName" in (endpoint.join() or {}):
        endpoint.move_in()
        endpoint.is_placed()
        endpoint.leave()
        endpoint.move_out()
    endpoint.delete()


@contextmanager
def _strace(host: Host, *options: str) -> Iterator[None]:
    """Trace all threads of the daemon, and not its plugins."""
    daemon = host.lab.daemon
    assert daemon is not None
    status = Path(f"/proc/{daemon.pid}/status").read_text("ascii")
    (pid,) = (line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:"))
    strace = host.lab.spawn("strace", "-f", "-b", "execve", "-o", _TRACE, *options, "-p", pid)
    try:
        wait_until(lambda: "attached" in strace.log(), "strace")
        yield
    finally:
        strace.kill(signal.SIGINT)
        strace.wait()
