# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`bring_back`: wherever the link is, CNI DEL finds it in staging, under its name and with its addresses."""

import os
from collections.abc import Mapping, Sequence
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, get_strings
from cni_invoker import Attachment, NetworkConfigurationList, Runtime
from cnm_bridge.core.errors import KernelError
from cnm_bridge.core.link_state import IpInterface
from cnm_bridge.system.kernel import Kernel, LinkLocation
from tests.kernel.namespace import Namespace, living_process
from tests.kernel.pair import ALTNAME, HOST_NAME
from tests.lab.waiting import wait_until

OTHER_ALTNAME = f"cni-bridge-0123456789a{'f' * 53}"
MAC = "ee:77:5c:0d:4a:3b"
TEXTS = ["10.1.0.2/24", "10.2.0.2/16", "fd00::2/64"]
ADDRESSES: tuple[IpInterface, ...] = tuple(ip_interface(text) for text in TEXTS)


@pytest.fixture
def veth(host: Namespace, staging: Namespace) -> Namespace:
    """The staging namespace with a veth `eth0`, up with an address; its peer `outside` is in the host's."""
    host.ip(f"link add outside up type veth peer name eth0 address {MAC} netns {staging.path}")
    staging.ip("link set eth0 up", "address add 10.1.0.2/24 dev eth0")
    return staging


@pytest.fixture
async def taken_out(kernel: Kernel, veth: Namespace) -> Namespace:
    """The same, after `eth0` has been moved to the host namespace."""
    await kernel.staged_link(veth.path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out()
    return veth


async def bring_back(
    kernel: Kernel,
    staging: Namespace,
    sandbox: Path | None = None,
    addresses: tuple[IpInterface, ...] | None = ADDRESSES,
    *,
    is_device: bool = False,
    device: str | None = None,
    is_shared: bool = False,
) -> LinkLocation:
    """Bring `eth0` back."""
    link = kernel.staged_link(staging.path, "eth0", host_name=HOST_NAME, altname=ALTNAME)
    return await link.bring_back(
        sandbox=sandbox, addresses=addresses, is_device=is_device, device=device, is_shared=is_shared
    )


def assert_back(host: Namespace, staging: Namespace) -> None:
    """The link is in staging with exactly its addresses, and the host has only its peer."""
    assert staging.links() == {"eth0"}
    assert staging.link("eth0")["address"] == MAC
    assert staging.addresses("eth0") == TEXTS
    assert host.links() == {"outside"}


def assert_replaced(staging: Namespace) -> None:
    """A veth has the link's name and addresses; both of its ends are in staging."""
    assert len(staging.links()) == 2
    assert staging.addresses("eth0") == TEXTS


FROM_HOST: Final[Mapping[str, Sequence[str]]] = {
    "as it was": (),
    "renamed": (f"link set {HOST_NAME} name renamed",),
    "without its alternative name, which a container removed": (
        f"link property del dev {HOST_NAME} altname {ALTNAME}",
    ),
    "with one that udev gives to devices": (
        f"link property del dev {HOST_NAME} altname {ALTNAME}",
        f"link property add dev {HOST_NAME} altname enp5s0-f0",
    ),
    "with an MTU too small for IPv6, which a container chose": (f"link set {HOST_NAME} mtu 1000",),
}
"""What has happened to the link that Docker has moved back after Leave, or never moved."""


@pytest.mark.parametrize("how", FROM_HOST)
async def test_bring_back_from_the_host(kernel: Kernel, host: Namespace, taken_out: Namespace, how: str) -> None:
    """It is found by its alternative name or by its name in the host namespace."""
    host.ip(*FROM_HOST[how])
    assert await bring_back(kernel, taken_out) is LinkLocation.HOST
    assert_back(host, taken_out)


async def test_another_endpoints_link_of_the_same_name(kernel: Kernel, host: Namespace, veth: Namespace) -> None:
    """If both IDs begin with the same digits, the alternative name tells which endpoint the host's link belongs to."""
    host.ip(f"link add {HOST_NAME} up type veth peer name another")
    host.ip(f"link property add dev {HOST_NAME} altname {OTHER_ALTNAME}")
    assert await bring_back(kernel, veth) is LinkLocation.STAGING
    assert veth.link("eth0")["address"] == MAC
    assert host.links() == {"outside", HOST_NAME, "another"}
    assert host.is_up(HOST_NAME)
    host.ip(f"link delete {HOST_NAME}")


async def test_bring_back_from_the_sandbox(
    kernel: Kernel, host: Namespace, taken_out: Namespace, sandbox: Namespace
) -> None:
    """There it is called ethN, and is up with addresses and routes."""
    host.ip(f"link set {HOST_NAME} netns {sandbox.path} name eth1")
    sandbox.ip("link set eth1 up", "address add 10.1.0.2/24 dev eth1", "route add default via 10.1.0.1")
    assert await bring_back(kernel, taken_out, sandbox.path) is LinkLocation.SANDBOX
    assert_back(host, taken_out)
    assert sandbox.links() == set()


async def test_bring_back_from_a_sandbox_that_is_not_mounted(
    kernel: Kernel, host: Namespace, taken_out: Namespace, tmp_path: Path
) -> None:
    """Docker has lost the container, whose process runs on; its link is found through that."""
    with living_process("unshare", "--net") as pid:
        host.ip(f"link set {HOST_NAME} netns {pid} name eth0")
        assert await bring_back(kernel, taken_out, tmp_path / "unmounted") is LinkLocation.SANDBOX
        assert_back(host, taken_out)
        assert Namespace(Path(f"/proc/{pid}/ns/net")).links() == set()


async def test_a_link_of_a_stranger_is_not_brought_back(
    kernel: Kernel, host: Namespace, taken_out: Namespace, tmp_path: Path
) -> None:
    """A local user without any right can give a link this alternative name."""
    host.ip(f"link del {HOST_NAME}")
    with living_process("unshare", "--user", "--map-root-user", "--net") as pid:
        ip = ("nsenter", f"--target={pid}", "--user", "--net", "ip")
        for command in ("link add forged type veth peer name peer", f"link property add dev forged altname {ALTNAME}"):
            host.run(" ".join((*ip, command)))
        assert await bring_back(kernel, taken_out, tmp_path / "unmounted") is LinkLocation.GONE
        assert b"forged" in host.run(" ".join((*ip, "link")))


async def test_bring_back_from_staging(kernel: Kernel, host: Namespace, veth: Namespace) -> None:
    """ADD failed, or the daemon died before the move; addresses that the result does not have are removed."""
    veth.ip(
        "address add 10.1.0.9/24 dev eth0", "address add 192.168.7.7/24 dev eth0", "address add fd00::9/64 dev eth0"
    )
    assert await bring_back(kernel, veth) is LinkLocation.STAGING
    assert_back(host, veth)


@pytest.mark.parametrize("name", ["eth0", HOST_NAME])
async def test_bring_back_from_staging_during_the_move(
    kernel: Kernel, host: Namespace, veth: Namespace, name: str
) -> None:
    """The daemon died after it had added the alternative name, or had renamed the link."""
    veth.ip(f"link property add dev eth0 altname {ALTNAME}", "link set eth0 down", f"link set eth0 name {name}")
    assert await bring_back(kernel, veth) is LinkLocation.STAGING
    assert_back(host, veth)


@pytest.mark.parametrize("is_gone", [False, True])
async def test_bring_back_may_be_repeated(kernel: Kernel, host: Namespace, taken_out: Namespace, is_gone: bool) -> None:
    """The second call changes nothing, and keeps the veth that replaces a link that no longer exists."""
    if is_gone:
        host.ip(f"link delete {HOST_NAME}")
    assert await bring_back(kernel, taken_out) is (LinkLocation.GONE if is_gone else LinkLocation.HOST)
    assert await bring_back(kernel, taken_out) is LinkLocation.STAGING
    if is_gone:
        assert_replaced(taken_out)
    else:
        assert_back(host, taken_out)


@pytest.mark.parametrize("is_device", [False, True])
async def test_the_alternative_name(kernel: Kernel, taken_out: Namespace, is_device: bool) -> None:
    """A device of the host loses it before DEL returns it; any other link keeps it, so that it is found again."""
    await bring_back(kernel, taken_out, is_device=is_device)
    assert (ALTNAME in get_strings(taken_out.link("eth0"), "altnames")) is not is_device


async def test_a_stand_in_that_a_plugin_has_moved(kernel: Kernel, host: Namespace, taken_out: Namespace) -> None:
    """`host-device` moves it to the host namespace, under the name that is its alias, and may remove the alias."""
    host.ip(f"link delete {HOST_NAME}")
    assert await bring_back(kernel, taken_out, is_device=True, device="device1") is LinkLocation.GONE
    for _ in range(2):
        assert taken_out.link("eth0")["ifalias"] == HOST_NAME
        taken_out.ip(
            "link set eth0 down", 'link set eth0 alias ""', f"link set eth0 netns {os.getpid()} name {HOST_NAME}"
        )
        assert host.links() == {HOST_NAME}
        await bring_back(kernel, taken_out, is_device=True, device="device1")
    taken_out.ip("link set eth0 down", f"link set eth0 netns {os.getpid()} name {HOST_NAME}")
    await kernel.remove_staging(taken_out.path)
    wait_until(lambda: host.links() == set(), "the end of the veth, whose peer is in the staging namespace")


DEVICES: Final = {
    "veth": "link add {name} type veth peer name outside",
    "macvlan": "link add link outside name {name} type macvlan",
}


@pytest.mark.parametrize("known", ["device1", "alternative", None])
@pytest.mark.parametrize(("cleared", "alias"), [("alias", "device1"), (None, "kept")])
async def test_the_alias_of_a_device(
    kernel: Kernel, host: Namespace, taken_out: Namespace, *, cleared: str | None, alias: str, known: str | None
) -> None:
    """`host-device` returns the device under it; the container may have cleared it."""
    host.ip(f"link property add dev {HOST_NAME} altname alternative")
    if cleared is None:
        host.ip(f"link set {HOST_NAME} alias kept")
    elif known != "device1":  # nothing says what its name was
        alias = HOST_NAME
    await bring_back(kernel, taken_out, is_device=True, device=known)
    assert taken_out.link("eth0")["ifalias"] == alias


OTHERS: Final[Mapping[str, tuple[str, ...]]] = {
    "with another name": ("link set other name eth9",),
    "with the mark of another attachment": (f"link property add dev other altname {OTHER_ALTNAME}",),
    "with an alias": ('link set other alias "of an operator"',),
    "in a sandbox": (),
}


@pytest.mark.parametrize("known", ["other", None])
@pytest.mark.parametrize("which", OTHERS)
async def test_a_link_that_is_not_the_device(
    kernel: Kernel, host: Namespace, staging: Namespace, which: str, known: str | None
) -> None:
    """It keeps all it has. Only in a staging namespace, a link that is alone is the device if nothing says its name."""
    host.ip(f"link add outside type veth peer name other netns {staging.path}")
    staging.ip(*OTHERS[which])
    if which == "with another name" and known is None:
        host.ip(f"link add outside8 type veth peer name eth8 netns {staging.path}")
    before = staging.run("ip -details address")
    is_shared = which == "in a sandbox"
    assert await bring_back(kernel, staging, is_device=True, device=known, is_shared=is_shared) is LinkLocation.GONE
    staging.ip("link delete eth0")
    assert staging.run("ip -details address") == before


@pytest.mark.parametrize(
    ("name", "has_alias", "known"),
    [
        ("device1", False, "device1"),
        ("device1", True, "device1"),
        ("device1", False, None),
        ("eth0", False, "eth0"),
    ],
)
@pytest.mark.parametrize("kind", DEVICES)
async def test_a_device_whose_plugin_was_killed(
    kernel: Kernel,
    runtime: Runtime,
    host: Namespace,
    staging: Namespace,
    *,
    kind: str,
    has_alias: bool,
    name: str,
    known: str | None,
) -> None:
    """`host-device` had moved it, and not yet renamed it: DEL returns it. It would end with the staging namespace."""
    if kind == "macvlan":
        host.ip("link add outside type veth peer name far")
    host.ip(DEVICES[kind].format(name=name), f"link set {name} netns {staging.path}")
    if has_alias:
        staging.ip(f"link set {name} alias {name}")
    for _ in range(2):  # the first DEL was killed before it ran
        found = await bring_back(kernel, staging, addresses=None, is_device=True, device=known)
        assert found is LinkLocation.STAGING
    document: JsonObject = {"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "host-device", "device": name}]}
    attachment = Attachment(container_id="c1", ifname="eth0", netns=str(staging.path))
    await runtime.delete(NetworkConfigurationList.from_document(document), attachment, None)
    assert name in host.links()
    assert staging.links() == set()
    host.ip(f"link delete {name}", *(["link delete outside"] if kind == "macvlan" else []))


async def test_a_link_that_is_found_later(
    kernel: Kernel, host: Namespace, taken_out: Namespace, sandbox: Namespace
) -> None:
    """It was in a sandbox that the first call did not receive; the veth of that call is replaced."""
    host.ip(f"link set {HOST_NAME} netns {sandbox.path} name eth0")
    assert await bring_back(kernel, taken_out) is LinkLocation.GONE
    assert await bring_back(kernel, taken_out, sandbox.path) is LinkLocation.SANDBOX
    assert_back(host, taken_out)


async def test_a_staging_namespace_that_no_longer_exists(kernel: Kernel, host: Namespace, taken_out: Namespace) -> None:
    """It is made again at its path, and the link is moved to it."""
    await kernel.remove_staging(taken_out.path)
    assert await bring_back(kernel, taken_out) is LinkLocation.HOST
    assert_back(host, taken_out)


async def test_neither_link_nor_staging_exists(kernel: Kernel, tmp_path: Path) -> None:
    """Both the namespace and a veth are made, as after a reboot."""
    staging = Namespace(tmp_path / "netns" / "endpoint")
    assert await bring_back(kernel, staging, tmp_path / "sandbox") is LinkLocation.GONE
    assert_replaced(staging)
    await kernel.remove_staging(staging.path)


@pytest.mark.parametrize("kind", ["missing", "plain file", "host namespace"])
async def test_a_path_that_is_no_sandbox(
    kernel: Kernel, host: Namespace, taken_out: Namespace, tmp_path: Path, kind: str
) -> None:
    """A path that is missing, a plain file or the host's namespace is not searched."""
    sandbox = host.path if kind == "host namespace" else tmp_path / "sandbox"
    if kind == "plain file":
        sandbox.touch()
    host.ip(f"link delete {HOST_NAME}")
    assert await bring_back(kernel, taken_out, sandbox) is LinkLocation.GONE
    assert_replaced(taken_out)


async def test_other_links_called_eth0_are_left_alone(
    kernel: Kernel, host: Namespace, taken_out: Namespace, sandbox: Namespace
) -> None:
    """The name that the link has in staging does not identify it in the host namespace or in the sandbox."""
    host.ip(f"link delete {HOST_NAME}", "link add eth0 up type veth peer name other")
    sandbox.ip("link add eth0 up type veth peer name peer")
    assert await bring_back(kernel, taken_out, sandbox.path) is LinkLocation.GONE
    assert host.links() == {"eth0", "other"}
    assert host.is_up("eth0")
    assert sandbox.links() == {"eth0", "peer"}
    assert sandbox.is_up("eth0")
    host.ip("link delete eth0")


async def test_a_link_whose_name_is_the_alternative_name(kernel: Kernel, host: Namespace, veth: Namespace) -> None:
    """It is left alone: the kernel finds links by either kind of name, but only the alternative one identifies it."""
    host.ip("link add marked up type veth peer name other")
    link = kernel.staged_link(veth.path, "eth0", host_name=HOST_NAME, altname="marked")
    found = await link.bring_back(sandbox=None, addresses=ADDRESSES, is_device=False)
    assert found is LinkLocation.STAGING
    assert host.links() == {"outside", "marked", "other"}
    host.ip("link delete marked")


async def test_bring_back_without_a_result(kernel: Kernel, veth: Namespace) -> None:
    """A link in staging keeps the addresses that its plugin gave it."""
    assert await bring_back(kernel, veth, addresses=None) is LinkLocation.STAGING
    assert veth.addresses("eth0") == ["10.1.0.2/24"]
    assert veth.is_up("eth0")


async def test_the_link_in_staging(kernel: Kernel, veth: Namespace, staging: Namespace) -> None:
    """It returns the addresses of the link in staging and nothing else; a missing link is an error."""
    found = await kernel.staged_link(veth.path, "eth0", host_name=HOST_NAME, altname=ALTNAME).look()
    assert "10.1.0.2/24" in [str(address.address) for address in found.addresses]
    assert found.routes == ()
    with pytest.raises(KernelError, match="eth9"):
        await kernel.staged_link(staging.path, "eth9", host_name=HOST_NAME, altname=ALTNAME).look()


async def test_bring_back_with_a_result_without_addresses(kernel: Kernel, veth: Namespace) -> None:
    """A link of layer 2 has no address, not even a link-local one."""
    assert await bring_back(kernel, veth, addresses=()) is LinkLocation.STAGING
    assert b"inet" not in veth.run("ip address show dev eth0")


@pytest.mark.parametrize("refused", ["10.1.0.2/24", "fd00::2/64", "fd00::2/128", "::1/128", "ff02::5/64", "::/128"])
@pytest.mark.parametrize("is_gone", [True, False])
async def test_addresses_that_the_kernel_refuses(
    kernel: Kernel, host: Namespace, taken_out: Namespace, is_gone: bool, refused: str
) -> None:
    """A result may have an address twice, or one that no link can have; the link gets the others."""
    if is_gone:
        host.ip(f"link delete {HOST_NAME}")
    await bring_back(kernel, taken_out, addresses=(ADDRESSES[0], ADDRESSES[2], ip_interface(refused), ADDRESSES[1]))
    assert set(taken_out.addresses("eth0")) == set(TEXTS)


async def test_bring_back_switches_ipv6_on(kernel: Kernel, host: Namespace, taken_out: Namespace) -> None:
    """IPv6 is switched on for a link that needs an IPv6 address, as plugins do it."""
    taken_out.run("sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6'")
    assert await bring_back(kernel, taken_out) is LinkLocation.HOST
    assert_back(host, taken_out)


async def test_ipv6_addresses_are_usable_at_once(kernel: Kernel, taken_out: Namespace) -> None:
    """They are not tentative, even in a namespace with duplicate address detection."""
    taken_out.run("sh -c 'echo 1 > /proc/sys/net/ipv6/conf/default/accept_dad'")
    await bring_back(kernel, taken_out)
    taken_out.ip("link set eth0 up")
    assert b"tentative" not in taken_out.run("ip address show dev eth0 to fd00::2")


async def test_a_macvlan(kernel: Kernel, host: Namespace, staging: Namespace) -> None:
    """It is moved back with its MAC address and addresses."""
    host.ip("link add parent up type veth peer name outside")
    host.ip(f"link add link parent name temporary address {MAC} type macvlan mode bridge")
    host.ip(f"link set temporary netns {staging.path} name eth0")
    await kernel.staged_link(staging.path, "eth0", host_name=HOST_NAME, altname=ALTNAME).take_out()
    assert await bring_back(kernel, staging) is LinkLocation.HOST
    assert staging.link("eth0")["address"] == MAC
    assert staging.addresses("eth0") == TEXTS
    host.ip("link delete parent")
