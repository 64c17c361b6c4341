# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Kernel tests work on real namespaces and links, and never in the machine's own.

Before the first test, the test process itself moves into a network and a mount namespace of its own and stays there.
These tests call that namespace the host. The guard fails a test that leaves a namespace or a link behind.
"""

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_state.store import Store
from cni_invoker import Runtime
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace, made_namespace
from tests.kernel.real_plugins import LIMITS, Executed, Plugins, find_plugins, uplink

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWNET: Final = 0x40000000
_DESTROY_LIMIT_S: Final = 5.0  # the kernel destroys namespaces, and the links in them, in the background
_SETUP: Final = """
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/cni
mount -t tmpfs tmpfs /var/lib/cni
mkdir /run/cgroup
mount --rbind /sys/fs/cgroup /run/cgroup
mount -t sysfs sysfs /sys
mount --move /run/cgroup /sys/fs/cgroup
rmdir /run/cgroup
ip link set lo up
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad  # no test waits for duplicate address detection
"""


@pytest.fixture(scope="session", autouse=True)
def private_namespaces() -> int:
    """Move this process into namespaces of its own; gives the inode of the machine's network namespace."""
    if os.geteuid() != 0:
        pytest.skip("making network namespaces needs root")
    return _leave_machine()


@cache  # the kernel tests of `extras` share it
def _leave_machine() -> int:
    assert threading.active_count() == 1, f"threads would stay in the machine's namespaces: {threading.enumerate()}"
    machine = _network_namespace()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS | _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot leave the machine's namespaces")
    assert _network_namespace() != machine
    subprocess.run(["sh", "-euc", _SETUP], check=True)
    return machine


@pytest.fixture(autouse=True)
def nothing_left_in_network(private_namespaces: int) -> Iterator[None]:
    """Fail a test that leaves a mounted namespace or a link behind, or this process in another namespace."""
    own = _network_namespace()
    assert own != private_namespaces
    before = _mounted_namespaces() | _links()
    yield
    assert _network_namespace() == own
    deadline = time.monotonic() + _DESTROY_LIMIT_S
    while (left := (_mounted_namespaces() | _links()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"left behind: {', '.join(sorted(left))}"


@pytest.fixture
def kernel() -> Kernel:
    """The kernel as the daemon uses it."""
    return Kernel(reply_limit_s=5.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()


@pytest.fixture
def host() -> Namespace:
    """The namespace that stands for Docker's own."""
    return Namespace(Path("/proc/self/ns/net"))


@pytest.fixture
async def staging(kernel: Kernel, tmp_path: Path) -> AsyncIterator[Namespace]:
    """A staging namespace, removed afterwards with its links."""
    namespace = Namespace(tmp_path / "netns" / "endpoint")
    await kernel.create_staging(namespace.path)
    yield namespace
    await kernel.remove_staging(namespace.path)


@pytest.fixture(params=["machine", "fetched"])
def plugins(request: pytest.FixtureRequest) -> Plugins:
    """The machine's own plugins, and those that were fetched."""
    return find_plugins(request.param)


@pytest.fixture
def executed() -> Executed:
    """The record of what the runtime has executed."""
    return Executed()


@pytest.fixture
def runtime(plugins: Plugins, executed: Executed) -> Runtime:
    """A runtime with these plugins and no others."""
    return Runtime([plugins.directory], LIMITS, observer=executed.on_execution)


@pytest.fixture
def host_with_uplink(private_namespaces: int) -> Iterator[None]:
    """A parent link for macvlan; the host is cleaned afterwards."""
    assert private_namespaces
    with uplink():
        yield


@pytest.fixture
def nothing_left_of_the_pair(host: Namespace, nothing_left_in_network: None) -> Iterator[None]:
    """Remove the pair of links, which a test that fails leaves behind."""
    del nothing_left_in_network  # requested so that it checks after this fixture
    yield
    with suppress(subprocess.CalledProcessError):  # the kernel may have destroyed it with the sandbox
        host.ip("link delete outside")


@pytest.fixture
def sandbox() -> Iterator[Namespace]:
    """A namespace that stands for a container's: its mount is called as Docker calls those of its sandboxes."""
    with made_namespace("5a4db0c50001") as namespace:
        yield namespace


def _network_namespace() -> int:
    return Path("/proc/self/ns/net").stat().st_ino


def _mounted_namespaces() -> set[str]:
    """Return the mount points of namespaces of every kind."""
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {f"namespace {fields[4]}" for fields in mounts if fields[fields.index("-") + 1] == "nsfs"}


def _links() -> set[str]:
    return {f"link {path.name}" for path in Path("/sys/class/net").iterdir()}


@pytest.fixture
def running() -> Iterator[tuple[Namespace, int]]:
    """A namespace like `sandbox`, and the ID of the process in it."""
    with made_namespace("5a4db0c50002") as namespace, namespace.living() as pid:
        yield namespace, pid


@pytest.fixture
def inhabited(running: tuple[Namespace, int]) -> Namespace:
    """A namespace like `sandbox`, in which a process runs."""
    return running[0]


@pytest.fixture
def inhabitant(running: tuple[Namespace, int]) -> Path:
    """The process in `inhabited`: its directory in `/proc`."""
    return Path("/proc", str(running[1]))


@pytest.fixture
def few_processes(tmp_path: Path, inhabitant: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The daemon sees only this process and one other: `/proc` of this machine need not show all processes."""
    processes = tmp_path / "processes"
    processes.mkdir()
    for process in (Path("/proc/self"), inhabitant):
        found = process.resolve()
        processes.joinpath(found.name).symlink_to(found)
    monkeypatch.setattr("cnm_bridge.resources.Kernel", partial(Kernel, processes=processes))
    return processes
