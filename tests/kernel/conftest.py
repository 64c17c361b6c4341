# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Kernel tests work on real namespaces and links, and never in the machine's own.

Before the first of them the test process itself moves into a network and a mount namespace of its own, for good: what
these tests call the host is that namespace. The guard fails a test that leaves a namespace or a link behind.
"""

import ctypes
import os
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from cni_invoker import Runtime
from cnm_bridge.kernel import Kernel
from state import Store
from tests.kernel.namespace import Namespace
from tests.kernel.real_plugins import LIMITS, Executed, Plugins, find_plugins, uplink

__all__ = [
    "executed",
    "host",
    "host_with_uplink",
    "inhabited",
    "kernel",
    "nothing_left_in_network",
    "nothing_left_of_the_pair",
    "plugins",
    "private_namespaces",
    "runtime",
    "sandbox",
    "staging",
    "store",
]

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWNET: Final = 0x40000000
_SETTLE_S: Final = 5.0  # the kernel destroys namespaces, and the links in them, in its own time
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
        pytest.skip("namespaces need root")
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
    """Fail a test that leaves a mounted namespace or a link behind, or this process where it must not be."""
    own = _network_namespace()
    assert own != private_namespaces
    before = _mounted_namespaces() | _links()
    yield
    assert _network_namespace() == own
    deadline = time.monotonic() + _SETTLE_S
    while (left := (_mounted_namespaces() | _links()) - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not left, f"left behind: {', '.join(sorted(left))}"


@pytest.fixture
def kernel() -> Kernel:
    """The object under test."""
    return Kernel(reply_limit_s=5.0)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store."""
    store = Store.open(tmp_path / "state")
    yield store
    store.close()


@pytest.fixture
def host() -> Namespace:
    """The namespace that plays Docker's own."""
    return Namespace(Path("/proc/self/ns/net"))


@pytest.fixture
async def staging(kernel: Kernel, tmp_path: Path) -> AsyncIterator[Namespace]:
    """A staging namespace, removed with what is in it."""
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
    """What the runtime has executed."""
    return Executed()


@pytest.fixture
def runtime(plugins: Plugins, executed: Executed) -> Runtime:
    """A runtime that has these plugins and no others."""
    return Runtime([plugins.directory], LIMITS, observer=executed)


@pytest.fixture
def host_with_uplink(private_namespaces: int) -> Iterator[None]:
    """A link for macvlan, and a clean host afterwards."""
    assert private_namespaces
    with uplink():
        yield


@pytest.fixture
def nothing_left_of_the_pair(host: Namespace, nothing_left_in_network: None) -> Iterator[None]:
    """Remove the pair of links of a test that fails before it would."""
    del nothing_left_in_network  # looks after this
    yield
    with suppress(subprocess.CalledProcessError):  # it goes with the sandbox as well, some time
        host.ip("link delete outside")


@pytest.fixture
def sandbox() -> Iterator[Namespace]:
    """A namespace that plays a container's."""
    subprocess.run(["ip", "netns", "add", "sandbox"], check=True)
    yield Namespace(Path("/run/netns/sandbox"))
    subprocess.run(["ip", "netns", "delete", "sandbox"], check=True)


def _network_namespace() -> int:
    return Path("/proc/self/ns/net").stat().st_ino


def _mounted_namespaces() -> set[str]:
    """Give the mount points of namespaces of every kind."""
    mounts = (line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines())
    return {f"namespace {fields[4]}" for fields in mounts if fields[fields.index("-") + 1] == "nsfs"}


def _links() -> set[str]:
    return {f"link {path.name}" for path in Path("/sys/class/net").iterdir()}


@pytest.fixture
def inhabited() -> Iterator[Namespace]:
    """A namespace that only a process keeps alive."""
    with subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec sleep 60"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # from here on it lives there
        try:
            yield Namespace(Path(f"/proc/{process.pid}/ns/net"))
        finally:
            process.kill()
