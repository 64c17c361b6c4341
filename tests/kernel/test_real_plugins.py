# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The CNI project's own plugins, the machine's and newer ones: every verb they support, and nothing left behind.

Each list offers several versions; the plugins determine which one is used. `python -m tests.lab.fetch plugins` fetches
the newer plugins.
"""

import asyncio
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, NetworkConfigurationList, PluginFailed, Result, Runtime, Verb, run_preflight
from cni_tool import CachedRuntime, FileCache
from tests.kernel.real_plugins import (
    BRIDGE,
    CAPABILITY_ARGS,
    HOST,
    HOST_LOCAL,
    LIMITS,
    LISTS,
    MACHINES,
    PORTMAP,
    Executed,
    Plugins,
    assert_in_effect,
    container,
    find_plugins,
    inside,
    make_list,
    observe,
)
from tests.lab import leftovers
from tests.pages import CNI_INVOKER, read_programs

pytestmark = pytest.mark.usefixtures("host_with_uplink")


async def assert_checked(
    plugins: Plugins, runtime: Runtime, network: NetworkConfigurationList, attachment: Attachment, result: Result
) -> None:
    """Assert that CHECK succeeds after ADD, and fails when the addresses are missing."""
    if network.plugins[-1].type == "sbr":  # it moves the routes that the plugin before it looks for
        with pytest.raises(PluginFailed, match="Failed to find Gateway"):
            await runtime.check(network, attachment, result)
        return
    if plugins.can_check(network):
        await runtime.check(network, attachment, result)
    else:
        with pytest.raises(PluginFailed, match="could not check ipv6 dnat"):
            await runtime.check(network, attachment, result)
    inside(attachment).ip("address flush dev eth0")
    with pytest.raises(PluginFailed) as caught:
        await runtime.check(network, attachment, result)
    assert caught.value.plugin == network.plugins[0].type
    for address in result.addresses_of("eth0"):
        inside(attachment).ip(f"address add {address} dev eth0")


@pytest.mark.parametrize("name", LISTS)
async def test_add_check_and_del(
    plugins: Plugins, runtime: Runtime, executed: Executed, tmp_path: Path, name: str
) -> None:
    """ADD takes effect, CHECK finds that, and fails when it is gone; DEL leaves nothing behind."""
    wanted = make_list(*LISTS[name], data_dir=tmp_path)
    report = await run_preflight(runtime, wanted)
    assert report.all_problems == ()
    network = await runtime.negotiate(wanted)
    assert network.cni_version == report.cni_version == plugins.version
    before = observe(tmp_path)
    with container("c1") as attachment:
        result = await runtime.add(network, attachment)
        assert result.cni_version == plugins.version
        assert_in_effect(network, attachment, result)
        await assert_checked(plugins, runtime, network, attachment, result)
        await runtime.delete(network, attachment, result)
        assert inside(attachment).links() == set()
        assert leftovers(before, observe(tmp_path)) == ""
        if name != "bridge, sbr" or plugins.directory != MACHINES:  # whose sbr fails in a second DEL
            await runtime.delete(network, attachment, result)
            await runtime.delete(network, attachment, None)
        assert leftovers(before, observe(tmp_path)) == ""
    types = [plugin.type for plugin in network.plugins]
    assert executed.plugins(Verb.ADD) == types
    assert executed.plugins(Verb.DEL)[: len(types)] == types[::-1]


async def test_loopback(plugins: Plugins, runtime: Runtime, tmp_path: Path) -> None:
    """ADD sets the loopback link up, and DEL sets it down."""
    network = await runtime.negotiate(make_list({"type": "loopback"}, data_dir=tmp_path))
    with container("c1") as ethernet:
        attachment = replace(ethernet, ifname="lo")
        inside(attachment).ip("link set lo down")
        result = await runtime.add(network, attachment)
        assert result.cni_version == plugins.version
        assert inside(attachment).is_up("lo")
        await runtime.check(network, attachment, result)
        await runtime.delete(network, attachment, result)
        assert not inside(attachment).is_up("lo")


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
async def test_an_attachment_of_an_older_version(runtime: Runtime, tmp_path: Path, version: str) -> None:
    """CHECK and DEL use the CNI version of its ADD, whichever version its stored result has."""
    network = make_list(*LISTS["ptp, bandwidth"], data_dir=tmp_path).with_version(version)
    before = observe(tmp_path)
    with container("c1") as attachment:
        result = await runtime.add(network, attachment)
        assert result.cni_version == version
        assert_in_effect(network, attachment, result)
        kept = result.converted("1.1.0")
        if version != "0.3.1":
            await runtime.check(network, attachment, kept)
        await runtime.delete(network, attachment, kept)
        assert inside(attachment).links() == set()
        assert leftovers(before, observe(tmp_path)) == ""


async def test_a_failed_add_is_undone_by_delete(runtime: Runtime, tmp_path: Path) -> None:
    """The error has the plugin's own message, and DEL undoes what the plugins before it did."""
    wrong: JsonObject = {"type": "tuning", "sysctl": {"net.core.no_such": "1"}}
    network = await runtime.negotiate(make_list({**BRIDGE, "ipam": HOST_LOCAL}, wrong, data_dir=tmp_path))
    before = observe(tmp_path)
    with container("c1") as attachment:
        with pytest.raises(PluginFailed, match="no_such") as caught:
            await runtime.add(network, attachment)
        assert (caught.value.plugin, caught.value.exit_status) == ("tuning", 1)
        assert leftovers(before, observe(tmp_path)) != ""
        await runtime.delete(network, attachment, None)
        assert inside(attachment).links() == set()
        assert leftovers(before, observe(tmp_path)) == ""


async def test_many_adds_share_chains(plugins: Plugins, tmp_path: Path) -> None:
    """However many ADDs run at once, each shared chain gets one jump; DEL removes everything else."""
    runtime = Runtime([plugins.directory], replace(LIMITS, executions=16))
    network = await runtime.negotiate(make_list({**BRIDGE, "ipam": HOST_LOCAL}, PORTMAP, data_dir=tmp_path))
    before = observe(tmp_path)
    attached: list[str] = []
    all_attached = asyncio.Barrier(17)

    def nat_rules() -> list[str]:
        return [rule for rule in HOST.run("iptables -t nat -S").decode().splitlines() if "CNI" in rule]

    async def attach(name: str, port: int) -> None:
        with container(name) as plain:
            ports: JsonObject = {"portMappings": [{"hostPort": port, "containerPort": 80, "protocol": "tcp"}]}
            attachment = replace(plain, capability_args=ports)
            result = await runtime.add(network, attachment)
            attached.append(name)
            await all_attached.wait()
            await runtime.delete(network, attachment, result)

    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        for number in range(16):
            tasks.create_task(attach(f"c{number}", 9000 + number))
        while len(attached) < 16:  # noqa: ASYNC110  # the barrier is for what follows
            await asyncio.sleep(0.05)
        rules = nat_rules()
        await all_attached.wait()
    jumps = [rule for rule in rules if rule.startswith(("-A PREROUTING", "-A OUTPUT"))]
    assert len(jumps) == len(set(jumps)) == 2
    assert sum(rule.startswith("-A CNI-HOSTPORT-SETMARK") for rule in rules) == 1
    assert sum(rule.startswith("-A CNI-DN-") for rule in rules) >= 16
    assert not any(rule.startswith("-A CNI-DN-") for rule in nat_rules())
    assert leftovers(before, observe(tmp_path)) == ""


async def test_a_plugin_written_in_python(tmp_path: Path) -> None:
    """The plugin of the documentation: real host-local gives its addresses, and real plugins take its result."""
    plugin = tmp_path / "cable"
    plugin.write_text(read_programs(CNI_INVOKER)["pair.py"].replace("#!/usr/bin/env python3", f"#!{sys.executable}"))
    plugin.chmod(0o755)
    runtime = Runtime([tmp_path, find_plugins("machine").directory], LIMITS)
    network = make_list({"type": "cable", "ipam": HOST_LOCAL}, {"type": "tuning", "mtu": 1400}, data_dir=tmp_path)
    network = await runtime.negotiate(network)
    assert (await runtime.version("cable")).supported[-1] == "1.1.0"
    before = observe(tmp_path)
    with container("python") as attachment:
        result = await runtime.add(network, attachment)
        assert inside(attachment).addresses("eth0") == ["10.99.0.2/24", "fd99::2/64"]
        assert "python" in HOST.links()
        await runtime.check(network, attachment, result)
        added = observe(tmp_path)
        with pytest.raises(PluginFailed, match="CalledProcessError"):  # the link on the host exists already
            await runtime.add(network, replace(attachment, ifname="eth1"))
        assert observe(tmp_path) == added
        for _ in range(2):
            await runtime.delete(network, attachment, result)
    assert leftovers(before, observe(tmp_path)) == ""


async def test_status_and_gc(plugins: Plugins, executed: Executed, tmp_path: Path) -> None:
    """GC deletes stale attachments and nothing else; plugins receive GC and STATUS if their CNI version has them."""
    runtime = Runtime([plugins.directory], LIMITS, observer=executed.on_execution)
    cached = CachedRuntime(runtime, FileCache(tmp_path / "cache"))
    network = await runtime.negotiate(make_list(*LISTS["bridge with all"], data_dir=tmp_path))
    types = [plugin.type for plugin in network.plugins]
    before = observe(tmp_path)
    await runtime.status(network)
    with ExitStack() as containers:
        kept, stale = (containers.enter_context(container(name)) for name in ("kept", "stale"))
        ports: JsonValue = [{"hostPort": 8081, "containerPort": 80, "protocol": "tcp"}]
        stale = replace(stale, capability_args={**CAPABILITY_ARGS, "portMappings": ports})
        result = await cached.add(network, kept)
        after_first = observe(tmp_path)
        await cached.add(network, stale)
        assert leftovers(after_first, observe(tmp_path)) != ""
        await cached.gc(network, [kept.key])
        assert leftovers(after_first, observe(tmp_path)) == ""
        assert [found.attachment.key for found in await cached.attachments()] == [kept.key]
        assert inside(stale).links() == set()
        assert_in_effect(network, kept, result)
        if plugins.can_check(network):
            await cached.check(network, kept)
        await cached.gc(network, [])
        assert leftovers(before, observe(tmp_path)) == ""
    known = plugins.version == "1.1.0"
    assert executed.plugins(Verb.STATUS) == (types if known else [])
    assert executed.plugins(Verb.GC) == (types * 2 if known else [])
