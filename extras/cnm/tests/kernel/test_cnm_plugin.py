# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The CNI plugin `cnm`, executed by our runtime, with a driver of another design and with our own daemon."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, render_json
from cni_invoker import Attachment, AttachmentKey, NetworkConfigurationList, PluginFailed, Result, Runtime
from tests.kernel.namespace import Namespace, made_namespace
from tests.lab.unix_http import is_answering
from tests.lab.waiting import wait_until
from tests.plugins.remote_driver import RemoteDriver

PLUGINS = Path("/usr/lib/cni")
ATTACHED = ["CreateNetwork", "CreateEndpoint", "Join", "ProgramExternalConnectivity", "EndpointOperInfo"]
DETACHED = ["RevokeExternalConnectivity", "Leave", "DeleteEndpoint", "DeleteNetwork"]


@pytest.fixture(name="remote")
def make_remote(private_namespaces: int) -> Iterator[RemoteDriver]:
    """A strict driver called `other`, which runs."""
    assert private_namespaces
    with RemoteDriver(Path("/run/docker/plugins/other.sock")).running() as driver:
        yield driver


@pytest.fixture(name="cni")
def make_runtime(private_namespaces: int, tmp_path: Path) -> Runtime:
    """A runtime that finds `cnm`, as it is installed, and the machine's plugins."""
    assert private_namespaces
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/cnm").symlink_to(Path(sys.executable).with_name("cnm"))
    return Runtime([tmp_path / "bin", PLUGINS])


@contextmanager
def container(name: str) -> Iterator[tuple[Attachment, Namespace]]:
    """A container's namespace; gives the attachment for it."""
    with made_namespace(name) as box:
        yield Attachment(container_id=name, ifname="eth0", netns=box.path), box


def network(driver: str = "other", **settings: JsonValue) -> NetworkConfigurationList:
    """A list with `cnm` alone."""
    plugin: JsonObject = {"type": "cnm", "driver": driver, **settings}
    # Debian's host-local does not have 1.1.0.
    version = "1.0.0" if "ipam" in settings else "1.1.0"
    return NetworkConfigurationList.from_document({"cniVersion": version, "name": "blue", "plugins": [plugin]})


def host_local(directory: Path) -> JsonObject:
    """An IPAM plugin with the subnet of the strict driver."""
    return {
        "type": "host-local",
        "dataDir": str(directory),
        "ranges": [[{"subnet": "10.77.0.0/24", "rangeStart": "10.77.0.100"}]],
        "routes": [{"dst": "203.0.113.0/24"}],
    }


def addresses(result: Result) -> list[str]:
    """The addresses of a result."""
    return [str(ip.address) for ip in result.ips]


def test_a_container_on_a_driver_s_network(cni: Runtime, remote: RemoteDriver) -> None:
    """It receives the link, the address, the routes and the gateway, as from Docker; DEL removes all of it."""
    with container("one") as (attachment, box):
        result = asyncio.run(cni.add(network(options={"color": "blue"}, endpointOptions={"weight": "3"}), attachment))
        assert remote.methods == ATTACHED
        assert remote.body("CreateNetwork")["Options"]["com.docker.network.generic"] == {"color": "blue"}
        assert remote.body("CreateNetwork")["IPv4Data"] == [{"AddressSpace": "null", "Pool": "0.0.0.0/0"}]
        assert remote.body("CreateEndpoint")["Options"]["weight"] == "3"
        assert remote.body("Join")["SandboxKey"] == attachment.netns
        assert addresses(result) == ["10.77.0.2/24"]
        assert result.interfaces[0].sandbox == attachment.netns
        assert result.interfaces[0].mac == box.link("eth0")["address"]
        assert {(str(route.dst), str(route.gw)) for route in result.routes} == {
            ("198.51.100.1/32", "None"),
            ("192.0.2.0/24", "198.51.100.1"),
            ("0.0.0.0/0", "10.77.0.1"),
        }
        assert box.run("ip route show default").decode().startswith("default via 10.77.0.1 dev eth0")
        assert b"via 198.51.100.1 dev eth0" in box.run("ip route show 192.0.2.0/24")
        box.run("busybox ping -c 1 -w 5 10.77.0.1")
        asyncio.run(cni.check(network(), attachment, result))
        box.ip("address delete 10.77.0.2/24 dev eth0")
        with pytest.raises(PluginFailed, match=r"eth0 has lost 10\.77\.0\.2/24"):
            asyncio.run(cni.check(network(), attachment, result))
        remote.calls.clear()
        for _ in range(2):  # the second one has nothing to do
            asyncio.run(cni.delete(network(), attachment, result))
        assert remote.methods == DETACHED
        assert box.links() == set()
        with pytest.raises(PluginFailed, match="eth0 of one is not attached"):
            asyncio.run(cni.check(network(), attachment, result))


def test_a_dual_stack_network(cni: Runtime, remote: RemoteDriver) -> None:
    """The container reaches the gateways of both families at once, and CHECK sees both addresses."""
    remote.dual_stack = True
    with container("one") as (attachment, box):
        result = asyncio.run(cni.add(network(), attachment))
        assert addresses(result) == ["10.77.0.2/24", "fd77::2/64"]
        assert [str(ip.gateway) for ip in result.ips] == ["10.77.0.1", "fd77::1"]
        assert box.run("ip -6 route show default").decode().startswith("default via fd77::1 dev eth0")
        box.run("busybox ping -c 1 -w 5 10.77.0.1")
        box.run("busybox ping -6 -c 1 -w 5 fd77::1")
        asyncio.run(cni.check(network(), attachment, result))
        box.ip("address delete fd77::2/64 dev eth0")
        with pytest.raises(PluginFailed, match="eth0 has lost fd77::2/64"):
            asyncio.run(cni.check(network(), attachment, result))
        asyncio.run(cni.delete(network(), attachment, result))
        assert remote.methods[-len(DETACHED) :] == DETACHED
        assert box.links() == set()


def test_addresses_of_an_ipam_plugin(cni: Runtime, remote: RemoteDriver, tmp_path: Path) -> None:
    """The driver receives them and the subnet as from Docker's IPAM; DEL frees them, without a result too."""
    with container("one") as (attachment, box):
        result = asyncio.run(cni.add(network(ipam=host_local(tmp_path)), attachment))
        assert remote.body("CreateEndpoint")["Interface"]["Address"] == "10.77.0.100/24"
        assert remote.body("CreateNetwork")["IPv4Data"] == [
            {"AddressSpace": "LocalDefault", "Pool": "10.77.0.0/24", "Gateway": "10.77.0.1/24"}
        ]
        assert addresses(result) == ["10.77.0.100/24"]
        assert b"203.0.113.0/24 via 10.77.0.1 dev eth0" in box.run("ip route")
        asyncio.run(cni.delete(network(ipam=host_local(tmp_path)), attachment, None))
    assert not [file for file in (tmp_path / "blue").iterdir() if file.name.startswith("10.")]


def test_a_network_exists_as_long_as_it_has_containers(cni: Runtime, remote: RemoteDriver) -> None:
    """It is created with the first and deleted with the last; its containers reach each other."""
    with container("one") as (one, box), container("two") as (two, _):
        asyncio.run(cni.add(network(), one))
        result = asyncio.run(cni.add(network(), two))
        box.run(f"busybox ping -c 1 -w 5 {result.ips[0].address.ip}")
        with pytest.raises(PluginFailed, match="driver or options of the network have changed"):
            asyncio.run(cni.add(network(options={"color": "red"}), replace(one, ifname="eth1")))
        asyncio.run(cni.delete(network(), one, None))
        assert remote.methods.count("CreateNetwork") == 1
        assert "DeleteNetwork" not in remote.methods
        asyncio.run(cni.delete(network(), two, result))
        assert remote.methods[-1] == "DeleteNetwork"
        asyncio.run(cni.add(network(options={"color": "red"}), one))
        asyncio.run(cni.delete(network(options={"color": "red"}), one, None))


@pytest.mark.parametrize("method", ["CreateNetwork", "CreateEndpoint", "Join", "EndpointOperInfo"])
def test_a_failed_add_is_undone(cni: Runtime, remote: RemoteDriver, tmp_path: Path, method: str) -> None:
    """The error is the driver's; nothing stays in the driver, in the container, or with the IPAM plugin."""
    remote.refuse[method] = "banana"
    ipam = host_local(tmp_path)
    with container("one") as (attachment, box):
        with pytest.raises(PluginFailed, match=f"driver other refuses NetworkDriver.{method}: banana") as failed:
            asyncio.run(cni.add(network(ipam=ipam), attachment))
        assert failed.value.code == 100
        remote.refuse.clear()
        assert box.links() == set()
        assert not [file for file in (tmp_path / "blue").iterdir() if file.name.startswith("10.")]
        remote.calls.clear()
        asyncio.run(cni.delete(network(ipam=ipam), attachment, None))
        assert remote.calls == []
        asyncio.run(cni.delete(network(), attachment, asyncio.run(cni.add(network(), attachment))))


def test_an_add_that_cannot_be_undone(cni: Runtime, remote: RemoteDriver, tmp_path: Path) -> None:
    """The driver still has the address, so it is not free before DEL has completed."""
    remote.refuse = {"EndpointOperInfo": "banana", "DeleteEndpoint": "stuck"}
    ipam = host_local(tmp_path)
    with container("one") as (attachment, _):
        with pytest.raises(PluginFailed, match=r"banana.*it is not undone: driver other refuses .*: stuck"):
            asyncio.run(cni.add(network(ipam=ipam), attachment))
        assert (tmp_path / "blue/10.77.0.100").exists()
        remote.refuse.clear()
        asyncio.run(cni.delete(network(ipam=ipam), attachment, None))
    assert not (tmp_path / "blue/10.77.0.100").exists()


@pytest.mark.long
def test_a_network_that_was_created_without_an_answer(cni: Runtime, remote: RemoteDriver) -> None:
    """It may exist: DEL deletes it, and an ADD without a DEL before it accepts that the driver has it."""
    remote.hang_up = {"CreateNetwork"}
    with container("one") as (attachment, _):
        with pytest.raises(PluginFailed, match=r"does not answer NetworkDriver\.CreateNetwork"):
            asyncio.run(cni.add(network(), attachment))
        remote.hang_up.clear()
        asyncio.run(cni.add(network(), attachment))
        asyncio.run(cni.delete(network(), attachment, None))
    assert remote.methods[-1] == "DeleteNetwork"


def test_a_link_name_that_is_taken(cni: Runtime, remote: RemoteDriver) -> None:
    """The kernel's reason is in the error, and the driver's link is gone."""
    with container("one") as (attachment, box):
        box.ip("link add eth0 type veth peer name other")
        with pytest.raises(PluginFailed, match="File exists"):
            asyncio.run(cni.add(network(), attachment))
        assert remote.methods[-1] == "DeleteNetwork"
        assert box.links() == {"eth0", "other"}


def test_the_host_s_namespace(cni: Runtime, remote: RemoteDriver) -> None:
    """It is refused: the link would be renamed in the host."""
    attachment = Attachment(container_id="one", ifname="eth0", netns="/proc/self/ns/net")
    with pytest.raises(PluginFailed, match="should not be the same") as failed:
        asyncio.run(cni.add(network(), attachment))
    assert failed.value.code == 8
    assert remote.calls == []


def test_del_after_the_container_and_the_driver_have_gone(cni: Runtime) -> None:
    """DEL fails as long as the driver does not answer, and succeeds when it has no such endpoint any more."""
    driver = RemoteDriver(Path("/run/docker/plugins/other.sock"))
    with container("one") as (attachment, _):
        with driver.running():
            asyncio.run(cni.add(network(), attachment))
        subprocess.run(["ip", "netns", "delete", "one"], check=True)
    with pytest.raises(PluginFailed, match="there is no Docker network driver other"):
        asyncio.run(cni.delete(network(), attachment, None))
    driver.forget()
    driver.calls.clear()
    with driver.running():
        asyncio.run(cni.delete(network(), attachment, None))
        assert driver.methods == DETACHED
    subprocess.run(["ip", "link", "delete", "rd0"], check=True)  # it has forgotten that, too


def test_a_program_of_the_driver_that_is_missing(cni: Runtime, remote: RemoteDriver, tmp_path: Path) -> None:
    """The driver has not deleted the endpoint: DEL fails, and the address is not free."""
    remote.refuse["DeleteEndpoint"] = 'exec: "ovs-vsctl": executable file not found in $PATH'
    ipam = host_local(tmp_path)
    with container("one") as (attachment, _):
        asyncio.run(cni.add(network(ipam=ipam), attachment))
        with pytest.raises(PluginFailed, match="ovs-vsctl"):
            asyncio.run(cni.delete(network(ipam=ipam), attachment, None))
        assert (tmp_path / "blue/10.77.0.100").exists()
        remote.refuse.clear()
        asyncio.run(cni.delete(network(ipam=ipam), attachment, None))
    assert not (tmp_path / "blue/10.77.0.100").exists()


@pytest.mark.long
def test_a_strict_driver_after_the_end_of_the_namespace(cni: Runtime, remote: RemoteDriver, tmp_path: Path) -> None:
    """The link has ended with the namespace, so the driver never finds it again: DEL logs that, and finishes."""
    remote.refuse["DeleteEndpoint"] = "cannot delete the link: stuck"
    ipam = host_local(tmp_path)
    with container("one") as (attachment, _):
        asyncio.run(cni.add(network(ipam=ipam), attachment))
        with pytest.raises(PluginFailed, match="stuck"):  # the link is back in the host
            asyncio.run(cni.delete(network(ipam=ipam), attachment, None))
        subprocess.run(["ip", "link", "delete", "rd2"], check=True)
        asyncio.run(cni.delete(network(ipam=ipam), attachment, None))
        remote.forget()
        subprocess.run(["ip", "link", "delete", "rd0"], check=False)
        asyncio.run(cni.add(network(ipam=ipam), attachment))
        subprocess.run(["ip", "netns", "delete", "one"], check=True)
        asyncio.run(cni.delete(network(ipam=ipam), attachment, None))
    assert not [file for file in (tmp_path / "blue").iterdir() if file.name.startswith("10.")]


def test_a_second_network(cni: Runtime, remote: RemoteDriver) -> None:
    """The container keeps the gateway of the first one, as with the plugin `bridge`; the result has no other."""
    remote.dual_stack = True
    with container("one") as (attachment, box):
        box.ip("link add eth9 type veth peer name other")
        box.ip("link set other up")
        box.ip("link set eth9 up")
        box.ip("address add 10.66.0.9/24 dev eth9")
        box.ip("address add fd99::9/64 dev eth9 nodad")
        box.ip("route add default via 10.66.0.1 dev eth9")
        box.ip("route add default via fd99::1 dev eth9")
        result = asyncio.run(cni.add(network(), attachment))
        assert [str(route.dst) for route in result.routes] == ["198.51.100.1/32", "192.0.2.0/24"]
        assert box.run("ip route show default").decode().split()[:5] == ["default", "via", "10.66.0.1", "dev", "eth9"]
        assert b"fd77" not in box.run("ip -6 route show default")
        asyncio.run(cni.delete(network(), attachment, result))


@pytest.mark.parametrize("given", ["args", "configuration"])
def test_a_wanted_mac(cni: Runtime, remote: RemoteDriver, given: str) -> None:
    """Podman passes it in CNI_ARGS; a configuration may have it in `args.cni`."""
    mac = "c2:11:22:33:44:55"
    with container("one") as (attachment, box):
        wanted = {"IgnoreUnknown": "1", "MAC": mac}
        blue = network() if given == "args" else network(args={"cni": {"mac": mac}})
        asyncio.run(cni.add(blue, replace(attachment, args=tuple(wanted.items()) if given == "args" else ())))
        assert remote.body("CreateEndpoint")["Interface"]["MacAddress"] == mac
        assert box.link("eth0")["address"] == mac
        asyncio.run(cni.delete(blue, attachment, None))


def test_del_of_what_was_never_added(cni: Runtime) -> None:
    """It needs no driver, even if the network has other containers."""
    with container("one") as (one, _), container("two") as (two, _):
        with RemoteDriver(Path("/run/docker/plugins/other.sock")).running() as driver:
            asyncio.run(cni.add(network(), one))
        asyncio.run(cni.delete(network(), two, None))
        with driver.running():
            asyncio.run(cni.delete(network(), one, None))


@pytest.mark.long
def test_a_driver_that_does_not_answer(cni: Runtime, remote: RemoteDriver) -> None:
    """DEL says so with code 11, try again later, and the repeated DEL completes."""
    with container("one") as (attachment, box):
        asyncio.run(cni.add(network(), attachment))
        kept = remote.socket.rename(remote.socket.with_name("kept"))
        with socket.socket(socket.AF_UNIX) as closed:
            closed.bind(str(remote.socket))
        with pytest.raises(PluginFailed, match="does not answer NetworkDriver") as failed:
            asyncio.run(cni.delete(network(), attachment, None))
        assert failed.value.code == 11
        remote.socket.unlink()
        kept.rename(remote.socket)
        asyncio.run(cni.delete(network(), attachment, None))
        assert box.links() == set()


def test_gc_and_status(cni: Runtime, remote: RemoteDriver) -> None:
    """GC deletes the endpoints that are not valid; STATUS fails without the driver."""
    asyncio.run(cni.status(network()))
    with container("one") as (one, kept), container("two") as (two, box):
        asyncio.run(cni.add(network(), one))
        asyncio.run(cni.add(network(), two))
        asyncio.run(cni.gc(network(), [AttachmentKey(container_id="one", ifname="eth0")]))
        assert (kept.links(), box.links()) == ({"eth0"}, set())
        asyncio.run(cni.gc(network(), []))
        assert kept.links() == set()
    assert remote.methods[-1] == "DeleteNetwork"
    with pytest.raises(PluginFailed, match="there is no Docker network driver missing") as failed:
        asyncio.run(cni.status(network("missing")))
    assert failed.value.code == 50


@pytest.mark.long
def test_our_own_daemon(cni: Runtime, private_namespaces: int, tmp_path: Path) -> None:
    """CNI, cnm, the daemon, CNI: two containers reach each other, and nothing is left behind."""
    assert private_namespaces
    lists, state = tmp_path / "net.d", tmp_path / "state"
    lists.mkdir()
    inner: JsonObject = {
        "cniVersion": "1.0.0",
        "name": "inner",
        "plugins": [{"type": "bridge", "bridge": "cni-test0", "isGateway": True, "ipam": host_local(tmp_path / "ips")}],
    }
    (lists / "inner.conflist").write_bytes(render_json(inner))
    answers = Path("/run/docker/plugins/cni-bridge.sock")
    options = {"--socket": answers, "--state-dir": state, "--cni-conf-dir": lists, "--run-dir": Path("/run/cni-bridge")}
    command = [str(Path(sys.executable).with_name("cni-bridge")), "serve", "--docker-host", f"unix://{tmp_path}/none"]
    with subprocess.Popen([*command, *(str(word) for pair in options.items() for word in pair)]) as daemon:
        try:
            wait_until(lambda: is_answering(answers, "POST", "/Plugin.Activate"), "the daemon's answer")
            blue = network("cni-bridge", options={"cni.network": "inner"})
            with container("one") as (one, box), container("two") as (two, _):
                first, second = asyncio.run(cni.add(blue, one)), asyncio.run(cni.add(blue, two))
                assert addresses(first) == ["10.77.0.100/24"]
                box.run(f"busybox ping -c 1 -w 5 {second.ips[0].address.ip}")
                asyncio.run(cni.check(blue, one, first))
                asyncio.run(cni.delete(blue, one, first))
                asyncio.run(cni.delete(blue, two, None))
                assert box.links() == set()
        finally:
            daemon.terminate()
            assert daemon.wait(60) == 0
    assert not [file for file in (tmp_path / "ips/inner").iterdir() if file.name.startswith("10.")]
    subprocess.run(["ip", "link", "delete", "cni-test0"], check=True)
