# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What is found in Docker's sandboxes, and that nothing else is looked into."""

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_interface
from pathlib import Path
from secrets import token_hex
from typing import Final

import pytest

from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace, living_process, made_namespace

ADDRESS: Final = "10.201.7.9"
ALTNAME: Final = f"cni-bridge-{token_hex(32)}"
ODD: Final = os.fsdecode(b"\377\376x")
"""A name that is not UTF-8."""


@pytest.fixture
def unseen(tmp_path: Path) -> Kernel:
    """A kernel without processes."""
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


def add_link(namespace: Namespace, name: str = "marked") -> None:
    """Make a link with an endpoint's alternative name and an address."""
    namespace.ip(
        f"link add {name} type veth peer name peer",
        f"link property add dev {name} altname {ALTNAME}",
        f"address add {ADDRESS}/24 dev {name}",
    )


@contextmanager
def mounted(namespace: Namespace, path: Path) -> Iterator[None]:
    """Mount a namespace at a further path."""
    subprocess.run(["mount", "--bind", namespace.path, path], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", path], check=True)


def links_passing(sandbox: Namespace) -> "subprocess.Popen[str]":
    """Let links come and go, until the process ends."""
    command = ["nsenter", f"--net={sandbox.path}", "ip", "-batch", "-"]
    changing = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
    assert changing.stdin is not None
    changing.stdin.write("link add passing type veth peer name passing-peer\nlink delete passing\n" * 100)
    changing.stdin.close()
    return changing


async def test_a_sandbox(unseen: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """Its links are found with their addresses; they are in use as long as a process runs there."""
    add_link(sandbox)
    with sandbox.living() as pid:
        (tmp_path / "proc" / str(pid)).symlink_to(f"/proc/{pid}")  # this machine need not show all of its processes
        seen = await unseen.look_into_sandboxes()
        assert seen.has_in_use(ALTNAME)
        assert seen.has_in_use(ALTNAME, ["/run/gone", str(sandbox.path)])
        assert not seen.has_in_use(ALTNAME, ["/run/gone"])
    seen = await unseen.look_into_sandboxes([str(sandbox.path), "/run/gone"])
    assert (not seen.has_in_use(ALTNAME), ALTNAME in seen.links) == (True, True)
    assert (seen.has(ALTNAME, str(sandbox.path)), seen.has(ALTNAME, "/run/gone")) == (True, False)
    assert ADDRESS in seen.addresses
    sandbox.ip("link del marked")


async def test_a_sandbox_of_another_exec_root(kernel: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """It is found by the form of its path; a namespace that is mounted below another name is none of Docker's."""
    elsewhere = {"netns/0123456789ab": True, "netns/lb_0123456": True, "netns/box": False, "other/0123456789ab": False}
    for path, is_sandbox in elsewhere.items():
        mount = tmp_path / "10 0.10\\0" / path
        mount.parent.mkdir(parents=True, exist_ok=True)
        mount.touch()
        with mounted(sandbox, mount):
            assert (str(mount) in (await kernel.look_into_sandboxes()).ids) is is_sandbox


USER_NAMESPACE: Final = ("--user", "--map-root-user")


@pytest.mark.parametrize("options", [(), USER_NAMESPACE], ids=["of root", "of a user without any right"])
async def test_a_namespace_that_is_not_mounted(kernel: Kernel, options: tuple[str, ...]) -> None:
    """It counts only if root has made it, and only for an endpoint whose sandbox is gone."""
    with living_process("unshare", *options, "--net") as pid:
        add_link(Namespace(Path(f"/proc/{pid}/ns/net")), f"'{ODD}'")
        seen = await kernel.look_into_sandboxes(["/run/gone"])
        assert seen.has_in_use(ALTNAME, ["/run/gone"]) is (options == ())
        assert not seen.has_in_use(ALTNAME)
        assert (ALTNAME in seen.links, ADDRESS in seen.addresses, seen.unread) == (False, False, {})


async def test_a_namespace_that_another_program_has_mounted(kernel: Kernel) -> None:
    """Its links do not count, nor their addresses."""
    with made_namespace("stranger") as namespace:
        add_link(namespace, f"'{ODD}'")
        seen = await kernel.look_into_sandboxes(["/run/gone"])
        assert (ALTNAME in seen.links, ALTNAME in seen.lost, ADDRESS in seen.addresses) == (False, False, False)


async def test_names_that_are_not_utf_8(kernel: Kernel, inhabited: Namespace, sandbox: Namespace) -> None:
    """A container may give its links any names; they are shown escaped, and hide nothing."""
    inhabited.ip(f"link add '{ODD}' type veth peer name peer", f"link property add dev '{ODD}' altname '{ODD}y'")
    add_link(sandbox)
    seen = await kernel.look_into_sandboxes()
    assert seen.links.keys() >= {r"\xff\xfexy", ALTNAME}
    sandbox.ip("link del marked")


async def test_links_that_leave_while_they_are_read(kernel: Kernel, sandbox: Namespace) -> None:
    """The sandbox counts as read."""
    with links_passing(sandbox) as changing:
        while changing.poll() is None:
            assert (await kernel.look_into_sandboxes()).unread == {}


async def test_a_sandbox_that_cannot_be_read(kernel: Kernel, sandbox: Namespace) -> None:
    """It says nothing about the others; an endpoint that is known to be there may be in use."""
    own = str(sandbox.path)
    with sandbox.living():
        with one_descriptor():
            seen = await kernel.look_into_sandboxes([own])
        inode = sandbox.path.stat().st_ino
        assert f"cannot look into {own}: Too many open files: /proc/thread-self/ns/net" in seen.unread.values()
        assert inode in {one.inode for one in seen.unread}
        assert (seen.has_in_use(ALTNAME, [own]), seen.has(ALTNAME, own)) == (True, True)
        assert not seen.has_in_use(ALTNAME)


async def test_processes_that_are_not_visible(unseen: Kernel, sandbox: Namespace) -> None:
    """A process may run in any sandbox then."""
    add_link(sandbox)
    assert not (await unseen.look_into_sandboxes()).has_in_use(ALTNAME)
    unseen.distrust_processes()
    seen = await unseen.look_into_sandboxes([str(sandbox.path)])
    assert (seen.inhabited, seen.has_in_use(ALTNAME), seen.is_inhabited(str(sandbox.path))) == (None, True, True)
    assert not seen.is_inhabited("/run/gone")
    sandbox.ip("link del marked")


async def test_the_host_namespace(kernel: Kernel, host: Namespace) -> None:
    """It is the sandbox of containers on the host's network, and is not looked into."""
    add_link(host)
    assert ALTNAME not in (await kernel.look_into_sandboxes(["/proc/self/ns/net"])).links
    host.ip("link del marked")


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
