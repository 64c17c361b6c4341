# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Staging namespaces: made completely or not at all, reused, removed; and what is found of mounts and links."""

import asyncio
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import pytest

from cni_invoker.execution.running_plugins import RunningPlugins
from cnm_bridge.core.errors import KernelError
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.kernel.netns import is_namespace
from tests.kernel.namespace import Namespace


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """A directory in another mount namespace, in which this process can make files but cannot mount."""
    command = ["unshare", "--mount", "sh", "-c", f"mount -t tmpfs tmpfs {tmp_path}; echo ready; exec cat"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield Path(f"/proc/{process.pid}/root") / tmp_path.relative_to("/")


def inode(path: Path) -> int:
    """Return the inode, which identifies a namespace."""
    return path.stat().st_ino


async def test_a_new_namespace_is_ready_for_plugins(staging: Namespace) -> None:
    """It is mounted, `lo` is up, duplicate address detection is off, and only root may enter its directory."""
    assert is_namespace(staging.path)
    assert inode(staging.path) != inode(Path("/proc/self/ns/net"))
    assert staging.is_up("lo")
    assert staging.setting("net/ipv6/conf/default/accept_dad") == "0"
    assert staging.setting("net/ipv6/conf/all/accept_dad") == "0"
    assert staging.path.parent.stat().st_mode & 0o777 == 0o700


async def test_duplicate_address_detection_is_off_for_links_made_later(staging: Namespace) -> None:
    """An IPv6 address is usable at once: ptp and macvlan would wait for it."""
    staging.ip("link add eth0 type veth peer name peer", "link set eth0 up", "link set peer up")
    staging.ip("address add fd00::2/64 dev eth0")
    assert b"tentative" not in staging.run("ip address show dev eth0 to fd00::2")


async def test_created_directories_are_for_root_only(kernel: Kernel, tmp_path: Path) -> None:
    """Parents of parents too: a path to a staging namespace gives access to a container's network."""
    path = tmp_path / "run" / "netns" / "endpoint"
    await kernel.create_staging(path)
    assert {parent.stat().st_mode & 0o777 for parent in (path.parent, path.parent.parent)} == {0o700}
    await kernel.remove_staging(path)


async def test_an_existing_namespace_is_kept(kernel: Kernel, staging: Namespace) -> None:
    """`create_staging` on it changes nothing: it is the same namespace with the same links."""
    staging.ip("link add eth0 type veth peer name peer")
    before = inode(staging.path)
    await kernel.create_staging(staging.path)
    assert inode(staging.path) == before
    assert staging.links() == {"eth0", "peer"}


async def test_a_stale_file_is_mounted_over(kernel: Kernel, tmp_path: Path) -> None:
    """The plain file that an interrupted call or a reboot leaves is no obstacle."""
    path = tmp_path / "endpoint"
    path.touch()
    await kernel.create_staging(path)
    assert is_namespace(path)
    await kernel.remove_staging(path)


async def test_a_failure_leaves_nothing(kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """The error names the path and the kernel's reason; the file for the mount point is removed."""
    host.run(f"mount -t tmpfs -o ro tmpfs {tmp_path}")
    path = tmp_path / "endpoint"
    try:
        with pytest.raises(KernelError, match=r"cannot make namespace .*/endpoint: Read-only file system") as caught:
            await kernel.create_staging(path)
        assert caught.value.subject == str(path)
        assert not path.exists()
    finally:
        host.run(f"umount {tmp_path}")


async def test_a_mount_that_fails_leaves_nothing(kernel: Kernel, elsewhere: Path) -> None:
    """The file for the mount point is removed if mounting fails."""
    path = elsewhere / "endpoint"
    with pytest.raises(KernelError, match=r"cannot make namespace .*/endpoint: Invalid argument"):
        await kernel.create_staging(path)
    assert not path.exists()


async def test_a_directory_is_not_mounted_over(kernel: Kernel, tmp_path: Path) -> None:
    """`create_staging` on an existing directory fails and leaves the directory as it is."""
    before = inode(tmp_path)
    with pytest.raises(KernelError):
        await kernel.create_staging(tmp_path)
    assert inode(tmp_path) == before


async def test_removing_destroys_the_links_inside(kernel: Kernel, host: Namespace, staging: Namespace) -> None:
    """The veth peer in the host namespace is destroyed too; the guard waits for that."""
    staging.ip(f"link add eth0 type veth peer name outside netns {os.getpid()}")
    assert host.links() == {"outside"}
    await kernel.remove_staging(staging.path)
    assert not staging.path.exists()


async def test_removing_several(kernel: Kernel, tmp_path: Path) -> None:
    """All of them are removed, also behind one that does not exist."""
    paths = [tmp_path / name for name in ("one", "none", "other")]
    for path in paths[::2]:
        await kernel.create_staging(path)
    await kernel.remove_staging(*paths)
    assert not any(path.exists() for path in paths)


async def test_removing_what_does_not_exist_succeeds(kernel: Kernel, tmp_path: Path) -> None:
    """A missing path, a second removal, a missing directory, and a file that is not a namespace are no errors."""
    path = tmp_path / "endpoint"
    await kernel.remove_staging(path)
    await kernel.create_staging(path)
    await kernel.remove_staging(path)
    await kernel.remove_staging(path)
    await kernel.remove_staging(tmp_path / "nowhere" / "endpoint")
    path.touch()
    await kernel.remove_staging(path)
    assert not path.exists()


async def test_removing_a_namespace_that_is_mounted_twice(kernel: Kernel, host: Namespace, tmp_path: Path) -> None:
    """Every mount at the path is removed."""
    path = tmp_path / "endpoint"
    await kernel.create_staging(path)
    host.run(f"mount --bind {path} {path}")
    await kernel.remove_staging(path)
    assert not path.exists()


async def test_is_namespace(tmp_path: Path) -> None:
    """A missing path, a plain file, a directory and a namespace of another kind are not network namespaces."""
    plain = tmp_path / "plain"
    plain.touch()
    for path in (tmp_path / "missing", plain / "below", plain, tmp_path, Path("/proc/self/ns/mnt")):
        assert not is_namespace(path)
    assert is_namespace(Path("/proc/self/ns/net"))


async def test_many_namespaces_at_once(kernel: Kernel, tmp_path: Path) -> None:
    """Namespaces that are made at the same time are all different, and all can be removed at the same time."""
    paths = [tmp_path / str(number) for number in range(16)]
    async with asyncio.TaskGroup() as group:
        for path in paths:
            group.create_task(kernel.create_staging(path))
    assert len({inode(path) for path in paths}) == len(paths)
    async with asyncio.TaskGroup() as group:
        for path in paths:
            group.create_task(kernel.remove_staging(path))
    assert not any(path.exists() for path in paths)


async def test_who_needs_the_directory_makes_it(tmp_path: Path, kernel: Kernel) -> None:
    """Staging namespaces, mount points of pins, and the files of running plugins do not need a restart."""
    run_dir = tmp_path / "run"
    plugins = RunningPlugins(run_dir / "plugins")
    for _ in range(2):
        await kernel.create_staging(run_dir / "netns" / "one")
        kernel.pin(run_dir / "pins" / "one", "eth0", "cni-test").prepare()
        with plugins.keep("one", "ADD", "bridge"):
            assert len([*(run_dir / "plugins").iterdir()]) == 1
        with pytest.raises(OSError, match="busy"):
            shutil.rmtree(run_dir / "netns")
        await kernel.remove_staging(run_dir / "netns" / "one")
        shutil.rmtree(run_dir)


ALTNAME = f"cni-bridge-{token_hex(32)}"


def add_marked_link(namespace: Namespace) -> None:
    """Make a link with an endpoint's alternative name."""
    namespace.ip("link add marked type veth peer name marked-peer", f"link property add dev marked altname {ALTNAME}")


async def test_mounted_namespaces(kernel: Kernel, sandbox: Namespace, tmp_path: Path) -> None:
    """Mount points at any path are found, also with spaces and backslashes; mounts of other kinds are not."""
    strange = tmp_path / "10 0.10\\0" / "netns"
    strange.mkdir(parents=True)
    (strange / "0a1b").touch()
    before = await kernel.mounted_namespaces()
    assert sandbox.path in before
    sandbox.run(f"mount --bind {sandbox.path} {shlex.quote(str(strange / '0a1b'))}")
    try:
        assert set(await kernel.mounted_namespaces()) == {*before, strange / "0a1b"}
    finally:
        sandbox.run(f"umount {shlex.quote(str(strange / '0a1b'))}")


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
