# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finding the links of endpoints: in namespaces with processes, in mounted namespaces, and on the host."""

import ctypes
import os
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from secrets import token_hex
from typing import Final

import pytest

from cnm_bridge.core.link_state import KernelError
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.kernel.namespaces.netns import current_namespace, namespace_id, run_in_thread
from cnm_bridge.system.kernel.namespaces.reader import NamespaceReader, mounted_namespaces
from tests.kernel.namespace import Namespace, living_process

# linux/capability.h
_CAPABILITY_VERSION: Final = 0x20080522
_RIGHTS_TO_FILES: Final = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH

ALTNAME = f"cni-bridge-{token_hex(32)}"  # unique on this machine: discovery examines the processes of all of it


def add_marked_link(namespace: Namespace, altname: str = ALTNAME) -> None:
    """Make a link with an endpoint's alternative name."""
    namespace.ip("link add marked type veth peer name marked-peer", f"link property add dev marked altname {altname}")


def lose_rights_to_files() -> None:
    """Drop the capabilities by which this thread may read every user's directories."""
    header, sets = struct.pack("=Ii", _CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0
    effective = int.from_bytes(sets.raw[:4], "little") & ~_RIGHTS_TO_FILES
    assert libc.capset(header, effective.to_bytes(4, "little") + sets.raw[4:]) == 0


async def in_use(staging: Path, processes: Path, *, first: Callable[[], None] = lambda: None) -> frozenset[str]:
    """Return the names of links in use according to these processes; `first` runs before, in the same thread."""
    with current_namespace() as fd:
        host = namespace_id(fd)

    def look() -> frozenset[str]:
        first()
        reader = NamespaceReader(host=host, reply_limit_s=5.0, processes=processes)
        return reader.altnames_in_use(staging, sees_processes=True)

    return await run_in_thread(look)


def show(processes: Path, pid: int) -> None:
    """Add a process to a directory that is read as `/proc`: this machine need not show all of its own."""
    processes.mkdir(exist_ok=True)
    (processes / str(pid)).symlink_to(f"/proc/{pid}")


async def test_a_link_in_a_namespace_with_a_process(kernel: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """It is in use as long as the process lives; it is in a mounted namespace before and after that too."""
    add_marked_link(sandbox)
    processes = tmp_path / "proc"
    show(processes, os.getpid())
    assert await in_use(tmp_path, processes) == set()
    assert ALTNAME in await kernel.altnames_mounted(tmp_path)
    with sandbox.living() as pid:
        show(processes, pid)
        assert await in_use(tmp_path, processes) == {ALTNAME}
        assert ALTNAME in await kernel.altnames_in_use(tmp_path)
    assert await in_use(tmp_path, processes) == set()
    sandbox.ip("link del marked")


def links_passing(sandbox: Namespace) -> "subprocess.Popen[str]":
    """Let links come and go, until the process ends."""
    command = ["nsenter", f"--net={sandbox.path}", "ip", "-batch", "-"]
    changing = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert changing.stdin is not None
    changing.stdin.write("link add passing type veth peer name passing-peer\nlink delete passing\n" * 100)
    changing.stdin.close()
    return changing


async def test_links_that_leave_while_they_are_read(sandbox: Namespace, tmp_path: Path) -> None:
    """They have no addresses; the namespace counts as read."""
    processes = tmp_path / "proc"
    with current_namespace() as fd:
        reader = NamespaceReader(host=namespace_id(fd), reply_limit_s=5.0, processes=processes)
    with sandbox.living() as pid, links_passing(sandbox) as changing:
        show(processes, pid)
        while changing.poll() is None:
            read = await run_in_thread(lambda: reader.addresses_by_altname(tmp_path, sees_processes=True))
            assert read.unread == ()


async def test_a_process_that_cannot_be_examined(sandbox: Namespace, staging: Namespace, tmp_path: Path) -> None:
    """It may live in any mounted namespace except staging namespaces: the links of all of them count as in use."""
    add_marked_link(sandbox)
    add_marked_link(staging, f"{ALTNAME}-s")
    processes = tmp_path / "proc"
    (processes / "1").mkdir(parents=True)
    assert await in_use(staging.path.parent, processes) == set()
    os.chown(processes / "1", 12345, 12345)
    (processes / "1").chmod(0o700)
    assert await in_use(staging.path.parent, processes, first=lose_rights_to_files) == {ALTNAME}
    sandbox.ip("link del marked")
    staging.ip("link del marked")


async def test_an_incomplete_list_of_processes(sandbox: Namespace, tmp_path: Path) -> None:
    """Links in mounted namespaces count as in use then, and the namespaces of processes are unknown."""
    show(tmp_path / "proc", os.getpid())
    kernel = Kernel(reply_limit_s=5.0, processes=tmp_path / "proc")
    add_marked_link(sandbox)
    assert ALTNAME not in await kernel.altnames_in_use(tmp_path)
    kernel.distrust_processes()
    assert ALTNAME in await kernel.altnames_in_use(tmp_path)
    with pytest.raises(KernelError, match="PID namespace"):
        await kernel.find_process_namespaces()
    sandbox.ip("link del marked")


async def test_a_link_in_a_namespace_that_is_not_mounted(kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """It is found through its processes: Docker's mounts need not be visible here."""
    with living_process("unshare", "--net") as pid:
        inside = Namespace(Path(f"/proc/{pid}/ns/net"))
        assert inside.path.stat().st_ino != host.path.stat().st_ino
        add_marked_link(inside)
        assert ALTNAME in await kernel.altnames_in_use(tmp_path)
        assert ALTNAME not in await kernel.altnames_mounted(tmp_path)


async def test_a_link_in_the_host_namespace(kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """It is neither in use nor in a mounted namespace, although the daemon's own process lives there."""
    add_marked_link(host)
    assert ALTNAME not in await kernel.altnames_in_use(tmp_path) | await kernel.altnames_mounted(tmp_path)
    host.ip("link del marked")


async def test_a_link_in_staging(kernel: Kernel, staging: Namespace) -> None:
    """A staging namespace is mounted too, but a link in it does not belong to a container."""
    add_marked_link(staging)
    assert ALTNAME not in await kernel.altnames_mounted(staging.path.parent)
    assert ALTNAME in await kernel.altnames_mounted(staging.path.parent / "other")
    staging.ip("link del marked")


def test_mounted_namespaces(sandbox: Namespace, tmp_path: Path) -> None:
    """Mount points at any path are found, also with spaces and backslashes; mounts of other kinds are not."""
    strange = tmp_path / "10 0.10\\0" / "netns"
    strange.mkdir(parents=True)
    (strange / "0a1b").touch()
    before = mounted_namespaces()
    assert sandbox.path in before
    subprocess.run(["mount", "--bind", sandbox.path, strange / "0a1b"], check=True)
    try:
        assert set(mounted_namespaces()) == {*before, strange / "0a1b"}
    finally:
        subprocess.run(["umount", strange / "0a1b"], check=True)


async def test_a_physical_link_is_not_deleted(kernel: Kernel, host: Namespace) -> None:
    """It only loses the endpoint's alternative name; `lo` stands for it, as it has no kind either."""
    host.ip(f"link property add dev lo altname {ALTNAME}", "link property add dev lo altname loop")
    (link,) = [link for link in await kernel.host_links() if ALTNAME in link.altnames]
    await kernel.delete_host_link(link, ALTNAME)
    assert host.altnames("lo") == ("loop",)
    await kernel.delete_host_link(link, ALTNAME)
    host.ip("link property del dev lo altname loop")


@pytest.mark.parametrize("what", ["renamed", "gone"])
async def test_a_link_that_has_changed_is_not_deleted(kernel: Kernel, host: Namespace, what: str) -> None:
    """A link that was renamed or deleted since it was found is left alone."""
    add_marked_link(host)
    (link,) = [link for link in await kernel.host_links() if ALTNAME in link.altnames]
    host.ip("link set marked name other" if what == "renamed" else "link del marked")
    await kernel.delete_host_link(link, ALTNAME)
    assert host.links() >= ({"other"} if what == "renamed" else set())
    if what == "renamed":
        host.ip("link del other")


async def test_the_host_s_addresses_and_ports(kernel: Kernel, host: Namespace) -> None:
    """Each address has the name of its link; a port of a bridge has the bridge's index."""
    host.ip("link add br9 type bridge", "link add port9 type veth peer name end9", "link set port9 master br9")
    host.ip(
        "address add 192.0.2.9/24 dev br9", "address add 2001:db8::9/64 dev br9", "address add 192.0.2.8/32 dev port9"
    )
    found = {(str(address), name) for address, name in await kernel.host_addresses() if name != "lo"}
    assert found == {("192.0.2.9/24", "br9"), ("2001:db8::9/64", "br9"), ("192.0.2.8/32", "port9")}
    masters = {link.state.name: link.master for link in await kernel.host_links()}
    assert (masters["port9"], masters["br9"]) == (host.index("br9"), None)
    host.ip("link del port9", "link del br9")
