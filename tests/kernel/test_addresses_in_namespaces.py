# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finding the addresses that containers use: in namespaces with processes, and in mounted namespaces."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

import pytest

from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace

ADDRESS: Final = "10.201.7.9"


@pytest.fixture
def unseen(tmp_path: Path) -> Kernel:
    """A kernel without processes, so that only mounted namespaces are read."""
    processes = tmp_path / "proc"
    processes.mkdir()
    return Kernel(reply_limit_s=5.0, processes=processes)


@contextmanager
def one_descriptor() -> Iterator[None]:
    """Let this process open one further descriptor at a time: enough for a namespace, not for a socket in it."""
    taken = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208  # with that of the listing, the free one
    limit = next(number for number in range(1 << 20) if number not in taken)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_an_address_in_a_mounted_namespace(unseen: Kernel, sandbox: Namespace) -> None:
    """It is in use, although no process is there."""
    sandbox.ip("link add used type veth peer name used-peer", f"address add {ADDRESS}/24 dev used")
    assert ADDRESS in await unseen.addresses_in_use()
    sandbox.ip("link del used")


async def test_dynamic_addresses(kernel: Kernel, sandbox: Namespace) -> None:
    """Those with a lifetime, of the links that are asked for; what is not there is ignored."""
    sandbox.ip(
        "link add used type veth peer name used-peer",
        "link property add dev used altname ours",
        "address add 10.201.7.8/24 dev used",
        f"address add {ADDRESS}/32 dev used valid_lft 600 preferred_lft 600",
        "address add 10.201.8.8/24 dev used-peer valid_lft 600 preferred_lft 600",
    )
    path = str(sandbox.path)
    found = await kernel.dynamic_addresses({"ours": path, "other": path, "gone": f"{path}-gone"})
    assert found == {"ours": (ip_interface(f"{ADDRESS}/32"),)}
    sandbox.ip("link del used")


async def test_a_namespace_that_cannot_be_read(unseen: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """The error names the namespace; of links with alternative names, those of the others are returned."""
    unseen.distrust_processes()
    with one_descriptor():
        seen = await unseen.addresses_by_altname(tmp_path)
    inode = sandbox.path.stat().st_ino
    assert seen.unread == (f"cannot look into net:[{inode}]: Too many open files: /proc/thread-self/ns/net",)


async def test_a_namespace_that_cannot_be_read_and_the_addresses_in_use(unseen: Kernel, sandbox: Namespace) -> None:
    """It may have any address, so none is known to be free."""
    with one_descriptor(), pytest.raises(KernelError, match=rf"cannot look into {sandbox.path}: Too many open files"):
        await unseen.addresses_in_use()
