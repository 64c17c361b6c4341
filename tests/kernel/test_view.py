# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finding mounted namespaces, and the links and addresses of the host."""

import shlex
from pathlib import Path
from secrets import token_hex

import pytest

from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace

ALTNAME = f"cni-bridge-{token_hex(32)}"


def add_marked_link(namespace: Namespace, altname: str = ALTNAME) -> None:
    """Make a link with an endpoint's alternative name."""
    namespace.ip("link add marked type veth peer name marked-peer", f"link property add dev marked altname {altname}")


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
