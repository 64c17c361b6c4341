# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Real plugins in real namespaces: ADD makes what its result says, and DEL leaves nothing behind."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, as_object, get_int, get_objects, get_str, parse_json
from cni_invoker import Attachment, Limits, NetworkConfigurationList, PluginFailed, Runtime
from cni_invoker.errors import PluginNotFound
from tests.pages import CNI_INVOKER, read_programs

PLUGIN_DIRS = [Path("/opt/cni/bin"), Path("/usr/lib/cni")]
LIMITS = Limits(add_s=30.0, delete_s=30.0)
PORTMAP: JsonObject = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}


def run(*command: str) -> str:
    """Run a command and return its standard output."""
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout


def links(*, netns: str | None = None) -> set[str]:
    """Return the names of the links of a namespace; without `netns`, of the namespace that the tests run in."""
    shown = parse_json(run("ip", *(["-n", netns] if netns else []), "-j", "link").encode())
    assert isinstance(shown, list)
    return {get_str(as_object(link, "link"), "ifname") for link in shown}


def addresses(netns: str, ifname: str) -> set[str]:
    """Return the global addresses of a link."""
    shown = parse_json(run("ip", "-n", netns, "-j", "addr", "show", "dev", ifname).encode())
    assert isinstance(shown, list)
    return {
        f"{get_str(address, 'local')}/{get_int(address, 'prefixlen')}"
        for link in shown
        for address in get_objects(as_object(link, "link"), "addr_info")
        if get_str(address, "scope") == "global"
    }


def nat_rules() -> list[str]:
    """Return the rules of the table nat that plugins have made."""
    return [rule for rule in run("iptables", "-t", "nat", "-S").splitlines() if "CNI" in rule]


@pytest.fixture(autouse=True)
def in_a_private_namespace() -> Iterator[None]:
    """Refuse to change the machine's own network; leave nothing behind in the private one."""
    before = links()
    assert before == {"lo"}, f"not a private network namespace: it has {before}; use `make kernel`"
    yield
    run("iptables", "-t", "nat", "-F")
    run("iptables", "-t", "nat", "-X")
    if "cni-test0" in links():
        run("ip", "link", "del", "cni-test0")
    assert links() == {"lo"}


@contextmanager
def namespace(name: str) -> Iterator[Attachment]:
    """Make a namespace for a container called `name`; gives the attachment for it."""
    run("ip", "netns", "add", name)
    try:
        # Duplicate address detection would take most of the time of these tests.
        run("ip", "netns", "exec", name, "busybox", "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0")
        run("ip", "-n", name, "link", "set", "lo", "up")
        yield Attachment(container_id=name, ifname="eth0", netns=f"/run/netns/{name}")
    finally:
        run("ip", "netns", "del", name)


def make_list(data_dir: Path, plugin_type: str, *further: JsonValue, **options: JsonValue) -> NetworkConfigurationList:
    """Make a dual-stack list whose first plugin has host-local addresses."""
    ranges: JsonValue = [[{"subnet": "10.99.0.0/24"}], [{"subnet": "fd99::/64"}]]
    ipam: JsonValue = {
        "type": "host-local",
        "dataDir": str(data_dir),
        "ranges": ranges,
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    }
    plugins: list[JsonValue] = [{"type": plugin_type, "ipam": ipam, **options}, *further]
    return NetworkConfigurationList.from_document({"name": "test", "cniVersion": "1.0.0", "plugins": plugins})


def reservations(data_dir: Path) -> set[str]:
    """Return the addresses that host-local has reserved."""
    files = (data_dir / "test").glob("*") if data_dir.exists() else ()
    return {file.name for file in files if file.name != "lock" and not file.name.startswith("last_reserved_ip")}


@pytest.fixture(name="runtime")
def make_runtime() -> Runtime:
    """A runtime with the machine's plugins."""
    runtime = Runtime(PLUGIN_DIRS, LIMITS)
    try:
        runtime.find_plugins(make_list(Path("/nowhere"), "bridge", PORTMAP))
    except PluginNotFound as exc:
        pytest.skip(str(exc))
    return runtime


@pytest.mark.parametrize(
    ("plugin_type", "options"),
    [("bridge", {"bridge": "cni-test0", "isGateway": True, "ipMasq": True}), ("ptp", {"ipMasq": True})],
)
async def test_add_and_delete(
    runtime: Runtime, tmp_path: Path, plugin_type: str, options: dict[str, JsonValue]
) -> None:
    """The container has the addresses of the result and reaches its gateway; after DEL nothing is left."""
    network = make_list(tmp_path, plugin_type, **options)
    with namespace("c1") as attachment:
        result = await runtime.add(network, attachment)
        given = result.addresses_of("eth0")
        assert addresses("c1", "eth0") == {str(address) for address in given}
        assert [address.network for address in given] == [
            ip_interface("10.99.0.0/24").network,
            ip_interface("fd99::/64").network,
        ]
        assert reservations(tmp_path) == {str(address.ip) for address in given}
        assert len(nat_rules()) > 0
        for ip in result.ips:
            run("ip", "netns", "exec", "c1", "busybox", "ping", "-c", "1", "-W", "2", str(ip.gateway))
        await runtime.delete(network, attachment, result)
        assert links(netns="c1") == {"lo"}
        assert links() - {"cni-test0"} == {"lo"}
        assert reservations(tmp_path) == set()
        assert nat_rules() == []


async def test_delete_may_be_repeated(runtime: Runtime, tmp_path: Path) -> None:
    """A second DEL of the same attachment succeeds, with and without its result."""
    network = make_list(tmp_path, "bridge", bridge="cni-test0", isGateway=True)
    with namespace("c1") as attachment:
        result = await runtime.add(network, attachment)
        await runtime.delete(network, attachment, result)
        await runtime.delete(network, attachment, result)
        await runtime.delete(network, attachment, None)


async def test_a_failed_add_is_undone_by_delete(runtime: Runtime, tmp_path: Path) -> None:
    """The error has the plugin's own message, and DEL undoes what the plugins before it did."""
    network = make_list(tmp_path, "bridge", {"type": "tuning", "sysctl": {"net.core.no_such": "1"}}, bridge="cni-test0")
    with namespace("c1") as attachment:
        with pytest.raises(PluginFailed, match="no_such") as caught:
            await runtime.add(network, attachment)
        assert (caught.value.plugin, caught.value.exit_status) == ("tuning", 1)
        assert len(reservations(tmp_path)) == 2
        await runtime.delete(network, attachment, None)
        assert links(netns="c1") == {"lo"}
        assert reservations(tmp_path) == set()


@pytest.mark.usefixtures("runtime")  # skips if there are no plugins
async def test_many_adds_share_chains(tmp_path: Path) -> None:
    """However many ADDs run at once, each shared chain gets one jump; DEL removes everything else."""
    runtime = Runtime(PLUGIN_DIRS, replace(LIMITS, executions=16))
    network = make_list(tmp_path, "bridge", PORTMAP, bridge="cni-test0", isGateway=True, ipMasq=True)

    async def attach(name: str, port: int) -> None:
        with namespace(name) as plain:
            mappings: JsonValue = [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]
            attachment = replace(plain, capability_args={"portMappings": mappings})
            result = await runtime.add(network, attachment)
            attached.append(name)
            await all_attached.wait()
            await runtime.delete(network, attachment, result)

    names = [f"c{number}" for number in range(16)]
    attached: list[str] = []
    all_attached = asyncio.Barrier(len(names) + 1)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for number, name in enumerate(names):
            tasks.create_task(attach(name, 9000 + number))
        while len(attached) < len(names):  # noqa: ASYNC110  # the barrier is for what follows
            await asyncio.sleep(0.05)
        rules = nat_rules()
        await all_attached.wait()
    jumps = [rule for rule in rules if rule.startswith(("-A PREROUTING", "-A OUTPUT"))]
    assert len(jumps) == len(set(jumps)) == 2
    assert sum(rule.startswith("-A CNI-HOSTPORT-SETMARK") for rule in rules) == 1
    assert sum(rule.startswith("-A CNI-DN-") for rule in rules) >= len(names)
    assert not any(rule.startswith("-A CNI-DN-") for rule in nat_rules())
    assert reservations(tmp_path) == set()
    assert links() == {"lo", "cni-test0"}


async def test_a_plugin_written_in_python(tmp_path: Path) -> None:
    """The plugin of the documentation: real host-local gives its addresses, and real plugins take its result.

    A failed ADD and a repeated DEL leave no reservation.
    """
    program = read_programs(CNI_INVOKER)["pair.py"]
    plugin = tmp_path / "cable"
    plugin.write_text(program.replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
    plugin.chmod(0o755)
    data_dir = tmp_path / "addresses"
    runtime = Runtime([tmp_path, *PLUGIN_DIRS], LIMITS)
    network = make_list(data_dir, "cable", {"type": "tuning", "mtu": 1400})
    assert (await runtime.version("cable")).supported[-1] == "1.1.0"
    with namespace("python") as attachment:
        result = await runtime.add(network, attachment)
        assert addresses("python", "eth0") == {str(ip.address) for ip in result.ips} == {"10.99.0.2/24", "fd99::2/64"}
        assert links() == {"lo", "python"}
        await runtime.check(network, attachment, result)
        taken = replace(attachment, ifname="eth1")  # the link on the host exists already
        with pytest.raises(PluginFailed, match="CalledProcessError"):
            await runtime.add(network, taken)
        assert reservations(data_dir) == {"10.99.0.2", "fd99::2"}
        for _ in range(2):
            await runtime.delete(network, attachment, result)
    assert reservations(data_dir) == set()
    assert links() == {"lo"}
