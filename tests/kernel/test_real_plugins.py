# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The CNI project's own plugins, the machine's and newer ones: every verb they support, and nothing left behind.

Each list offers several versions; the plugins determine which one is used. `python -m tests.lab.fetch_plugins` fetches
the newer plugins.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import Attachment, NetworkConfigurationList, PluginFailed, Result, Runtime, Verb, run_preflight
from tests.kernel.real_plugins import (
    LISTS,
    MACHINES,
    Executed,
    Plugins,
    assert_in_effect,
    container,
    inside,
    make_list,
    observe,
)
from tests.lab import leftovers

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
