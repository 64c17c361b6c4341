# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A repeated teardown resumes where it stopped, and leaves alone what belongs to a new endpoint by now."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointId, EndpointRecord, Phase, StateUnusable
from cni_bridge_state.store import Store
from cni_invoker import Limits, NetworkConfigurationList, PluginFailed, Runtime
from cnm_bridge.core.errors import AddressClaimed
from cnm_bridge.driver.teardown.address_owners import AddressOwners
from cnm_bridge.driver.teardown.pending import PendingTeardowns
from cnm_bridge.driver.teardown.teardown import Teardown
from cnm_bridge.system.kernel import Kernel
from tests.kernel.attachers import make_attachers, make_teardown
from tests.kernel.test_full_disk import disk, fill
from tests.plugins import FakePlugins
from tests.records import endpoint, put

__all__ = ["disk"]

FIRST, SECOND = (digit + token_hex(32)[1:] for digit in "12")
"""Unique on this machine: a link that is missing is searched for in the namespaces of root's processes."""
FAILS: JsonObject = {"error": {"code": 999, "msg": "xtables lock is held"}}
ADDRESS = "10.1.0.9"
LIMITS = Limits(delete_s=20.0)


@pytest.fixture
def fakes(tmp_path: Path) -> FakePlugins:
    """The plugins of a list: one that makes the link, `firewall`, and one more."""
    fakes = FakePlugins(tmp_path / "bin")
    for name in ("bridge", "firewall", "third"):
        fakes.install(name)
    return fakes


def record_of(
    endpoint_id: str, netns: Path, phase: Phase, *, addresses: Sequence[str] = (ADDRESS,), added_plugins: int = 3
) -> EndpointRecord:
    """Make an endpoint of the list, with addresses."""
    made = endpoint(endpoint_id, phase, plugins=[{"type": name} for name in ("bridge", "firewall", "third")])
    result: JsonObject = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "sandbox": str(netns)}],
        "ips": [{"address": f"{address}/24", "interface": 0} for address in addresses],
    }
    attachment = replace(made.attachment, netns=str(netns))
    return replace(made, attachment=attachment, result=result, added_plugins=added_plugins, addresses=tuple(addresses))


def teardown_of(
    store: Store,
    kernel: Kernel,
    fakes: FakePlugins,
    owners: AddressOwners | None = None,
    *,
    pending: PendingTeardowns | None = None,
) -> Teardown:
    """Make the teardown under test."""
    runtime = Runtime([fakes.directory], LIMITS)
    attachers = make_attachers(store, runtime, kernel, fakes.directory / "run")
    pending = pending or PendingTeardowns()
    return make_teardown(store, attachers, kernel, fakes.directory, pending=pending, owners=owners)


async def fill_log(store: Store) -> None:
    """Write until no write succeeds: on a full disk the last page of the log still has space."""
    with suppress(StateUnusable):
        while True:
            await store.put_engine_identity("x" * 1000)


async def test_a_repeated_teardown_resumes(store: Store, kernel: Kernel, fakes: FakePlugins, tmp_path: Path) -> None:
    """Plugins whose DEL has completed do not run again, not even after a restart of the daemon."""
    fakes.install("bridge", DEL=[FAILS, FAILS, {}])
    await put(store, record_of(FIRST, tmp_path / "netns" / "first", Phase.JOINED))
    with pytest.raises(PluginFailed, match="xtables lock"):
        await teardown_of(store, kernel, fakes)(store.get_endpoint(EndpointId(FIRST)))
    failed = store.get_endpoint(EndpointId(FIRST))
    assert (failed.phase, failed.deleted) == (Phase.DELETING, (1, 2))
    await teardown_of(store, kernel, fakes)(failed)
    assert fakes.deleted() == ["third", "firewall", "bridge", "bridge", "bridge"]
    assert store.endpoints() == ()


async def test_a_teardown_on_a_full_disk(disk: Path, kernel: Kernel, fakes: FakePlugins, tmp_path: Path) -> None:
    """Everything is undone except the record; when there is space, it is removed, and no plugin runs again."""
    store = Store.open(disk / "state")
    await put(store, record_of(FIRST, tmp_path / "netns" / "first", Phase.JOINED))
    teardown = teardown_of(store, kernel, fakes)
    fill(disk)
    await fill_log(store)
    for _ in range(2):
        with pytest.raises(StateUnusable, match="No space left"):
            await teardown(store.get_endpoint(EndpointId(FIRST)))
    (disk / "filling").unlink()
    await teardown(store.get_endpoint(EndpointId(FIRST)))
    assert store.find_endpoint(EndpointId(FIRST)) is None
    assert fakes.deleted() == ["third", "firewall", "bridge"]
    store.close()


@pytest.mark.parametrize("strange", [ADDRESS, "239.1.1.1", "ff02::5", "::1"], ids=["twice", "IPv4", "IPv6", "loopback"])
async def test_addresses_that_no_link_can_have(
    store: Store, kernel: Kernel, fakes: FakePlugins, tmp_path: Path, strange: str
) -> None:
    """A plugin reported an address twice, a multicast or a loopback address: DEL runs all the same."""
    record = record_of(FIRST, tmp_path / "netns" / "first", Phase.JOINED, addresses=[ADDRESS, strange])
    await put(store, record)
    await teardown_of(store, kernel, fakes)(store.get_endpoint(EndpointId(FIRST)))
    assert fakes.deleted() == ["third", "firewall", "bridge"]
    assert store.endpoints() == ()


@pytest.mark.parametrize(
    "owner", ["joined", "not torn down yet", "being deleted", "has another address", "has no firewall"]
)
async def test_an_address_with_a_new_owner(
    store: Store, kernel: Kernel, fakes: FakePlugins, tmp_path: Path, owner: str
) -> None:
    """`firewall` receives no result if another endpoint needs the rules of the address; other plugins always do."""
    first = record_of(FIRST, tmp_path / "netns" / "first", Phase.JOINED)
    second = record_of(SECOND, tmp_path / "netns" / "second", Phase.JOINED)
    if owner == "has another address":
        second = replace(second, addresses=("10.1.0.8",))
    if owner == "has no firewall":
        configuration = {**second.attachment.configuration, "plugins": [{"type": "bridge"}]}
        second = replace(second, attachment=replace(second.attachment, configuration=configuration))
    for record in (first, second):
        await put(store, record)
    if owner == "being deleted":
        await store.put_endpoint(replace(second, phase=Phase.DELETING))
    pending = PendingTeardowns()
    if owner == "not torn down yet":  # a container may run on it, which its attempt finds out first
        pending.add(second.id)
    await teardown_of(store, kernel, fakes, pending=pending)(first)
    received = {c.plugin: bool(c.stdin.get("prevResult")) for c in fakes.commands if c.verb == "DEL"}
    assert received == {"bridge": True, "third": True, "firewall": owner not in {"joined", "not torn down yet"}}


async def test_an_address_claimed_by_a_new_endpoint(
    store: Store, kernel: Kernel, fakes: FakePlugins, tmp_path: Path
) -> None:
    """DEL of `firewall` is put off until the claim ends; then it removes its rules."""
    owners = AddressOwners(store, PendingTeardowns())
    first = record_of(FIRST, tmp_path / "netns" / "first", Phase.JOINED)
    await put(store, first)
    teardown = teardown_of(store, kernel, fakes, owners)
    configuration = NetworkConfigurationList.from_document(first.attachment.configuration)
    with (
        owners.claim(EndpointId(SECOND), [ip_address(ADDRESS)], configuration),
        pytest.raises(AddressClaimed, match="firewall"),
    ):
        await teardown(first)
    assert (fakes.deleted(), store.get_endpoint(first.id).deleted) == (["third"], (2,))
    await teardown(store.get_endpoint(first.id))
    received = {c.plugin: bool(c.stdin.get("prevResult")) for c in fakes.commands if c.verb == "DEL"}
    assert received == {"bridge": True, "third": True, "firewall": True}


async def test_a_former_owner_whose_record_could_not_be_removed(
    disk: Path, kernel: Kernel, fakes: FakePlugins, tmp_path: Path
) -> None:
    """It owns the address no longer, as its plugins have completed: the next owner's teardown removes the rules."""
    store = Store.open(disk / "state")
    first = record_of(FIRST, tmp_path / "netns" / "first", Phase.JOINED)
    second = record_of(SECOND, tmp_path / "netns" / "second", Phase.JOINED)
    await put(store, first)
    teardown = teardown_of(store, kernel, fakes)
    fill(disk)
    await fill_log(store)
    with pytest.raises(StateUnusable, match="No space left"):
        await teardown(first)
    (disk / "filling").unlink()
    await put(store, second)
    await teardown(second)
    firewall = [c for c in fakes.commands if (c.plugin, c.verb) == ("firewall", "DEL")]
    assert [bool(c.stdin.get("prevResult")) for c in firewall] == [True, True]
    store.close()


async def test_addresses_are_shown_to_the_plugin_that_failed_only(
    store: Store, kernel: Kernel, fakes: FakePlugins, tmp_path: Path
) -> None:
    """DEL runs once per address for the plugin that lost a chain, not for the later one, whose ADD did not complete."""
    half_done: JsonObject = {"error": {"code": 999, "msg": "(nf_tables): Chain 'CNI-1' does not exist"}}
    fakes.install("firewall", DEL=[FAILS, FAILS, FAILS, FAILS, {}])
    fakes.install("bridge", DEL=[half_done, half_done, half_done, half_done, {}])
    addresses = [ADDRESS, "10.1.0.10"]
    await put(store, record_of(FIRST, tmp_path / "netns" / "first", Phase.JOINED, addresses=addresses, added_plugins=1))
    teardown = teardown_of(store, kernel, fakes)
    with pytest.raises(PluginFailed, match="xtables lock"):
        await teardown(store.get_endpoint(EndpointId(FIRST)))
    assert store.get_endpoint(EndpointId(FIRST)).deleted == (0, 2)
    assert fakes.deleted().count("bridge") == 6
    await teardown(store.get_endpoint(EndpointId(FIRST)))
    assert store.endpoints() == ()


async def test_a_plugin_that_lost_a_chain_is_shown_its_addresses_one_by_one(
    store: Store, kernel: Kernel, fakes: FakePlugins, tmp_path: Path
) -> None:
    """A plugin that was killed between two addresses fails at the first each time; later plugins do not run again."""
    half_done: JsonObject = {"error": {"code": 999, "msg": "(nf_tables): Chain 'CNI-1' does not exist"}}
    fakes.install("bridge", DEL=[half_done, half_done, half_done, half_done, {}])
    netns = tmp_path / "netns" / "first"
    await put(store, record_of(FIRST, netns, Phase.JOINED, addresses=[ADDRESS, "10.1.0.10"]))
    await teardown_of(store, kernel, fakes)(store.get_endpoint(EndpointId(FIRST)))
    assert fakes.deleted() == ["third", "firewall", *["bridge"] * 6]
    assert store.endpoints() == ()
