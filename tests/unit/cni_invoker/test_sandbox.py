# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container with all of its networks."""

from pathlib import Path

import pytest

from cni_bridge_spec import JsonValue
from cni_invoker import (
    Attachment,
    CachedRuntime,
    Capabilities,
    ConfigurationDirectories,
    FileCache,
    MemoryCache,
    NetworkConfigurationList,
    PluginFailed,
    PortMapping,
    Runtime,
    Sandbox,
    SandboxNetwork,
)
from cni_invoker.documents.jsontypes import JsonObject
from cni_invoker.errors import ConfigurationNotFound, InvalidParameter, SandboxFailed
from cni_invoker.sandbox import LOOPBACK, collect_sandboxes, list_sandboxes
from tests.plugins import FakePlugins
from tests.unit.cni_invoker.runtime_scene import FAILED, LIMITS, RESULT

NETNS = Path("/run/netns/c1")


def network(name: str, *types: str, **keys: JsonValue) -> NetworkConfigurationList:
    """Make a list of plugins that declare port mappings."""
    plugins: list[JsonValue] = [{"type": kind, "capabilities": {"portMappings": True}} for kind in types]
    return NetworkConfigurationList.from_document({"name": name, "cniVersion": "1.1.0", "plugins": plugins, **keys})


BLUE, RED, GREEN = network("blue", "first", "second"), network("red", "first"), network("green", "third")


@pytest.fixture
def fakes(plugins: FakePlugins) -> FakePlugins:
    """Fake plugins, `loopback` among them; `third` begins a list of its own."""
    plugins.install("loopback", ADD={"result": {"cniVersion": "1.0.0", "interfaces": [{"name": "lo"}]}})
    plugins.install("third", ADD={"result": RESULT})
    return plugins


@pytest.fixture
def cached(fakes: FakePlugins) -> CachedRuntime:
    """A runtime that stores attachments in memory."""
    return CachedRuntime(Runtime(fakes.directory, LIMITS), MemoryCache())


def calls(fakes: FakePlugins, verb: str) -> list[tuple[str, str]]:
    """Return plugin and interface of each execution for a verb."""
    return [(one.plugin, one.environment["CNI_IFNAME"]) for one in fakes.commands if one.verb == verb]


async def test_networks_are_added_in_order(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """First `lo`, then each network with the next name; the first one is the default network."""
    added = await Sandbox(cached, "c1").add(NETNS, [BLUE, RED])
    assert calls(fakes, "ADD") == [("loopback", "lo"), ("first", "eth0"), ("second", "eth0"), ("first", "eth1")]
    assert [(one.network, one.ifname, str(one.result.ips[0].address)) for one in added] == [
        ("blue", "eth0", "10.1.2.3/24"),
        ("red", "eth1", "10.1.2.3/24"),
    ]
    assert {one.environment["CNI_NETNS"] for one in fakes.commands if one.verb == "ADD"} == {str(NETNS)}


async def test_without_loopback_and_with_given_names(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """A name may be given; the others keep those of their places."""
    await Sandbox(cached, "c1").add(NETNS, [SandboxNetwork(network=RED, ifname="net0"), GREEN], loopback=False)
    assert calls(fakes, "ADD") == [("first", "net0"), ("third", "eth1")]


async def test_one_network_twice(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """A container may have several interfaces on one network."""
    sandbox = Sandbox(cached, "c1")
    await sandbox.add(NETNS, [RED, RED])
    assert len(await sandbox.attachments()) == 3
    await sandbox.delete()
    assert calls(fakes, "DEL") == [("loopback", "lo"), ("first", "eth1"), ("first", "eth0")]


@pytest.mark.parametrize(
    ("networks", "message"),
    [
        ([], "there is none"),
        ([SandboxNetwork(network=RED, ifname="eth1"), GREEN], "two interfaces have it"),
        ([SandboxNetwork(network=RED, ifname="lo")], "two interfaces have it"),
        ([SandboxNetwork(network=RED, ifname="a/b")], "invalid interface name"),
    ],
)
async def test_nothing_runs_for_an_impossible_request(
    cached: CachedRuntime, fakes: FakePlugins, networks: list[SandboxNetwork], message: str
) -> None:
    """A request that contradicts itself is refused as a whole."""
    with pytest.raises(InvalidParameter, match=message):
        await Sandbox(cached, "c1").add(NETNS, networks)
    assert fakes.commands == ()


async def test_capability_arguments(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """Typed arguments reach the plugins that declare them; what none declares is reported."""
    ports = Capabilities(port_mappings=(PortMapping(host_port=8080, container_port=80),), mac="c2:11:22:33:44:55")
    (added,) = await Sandbox(cached, "c1").add(NETNS, [SandboxNetwork(network=RED, capabilities=ports)])
    (request,) = [one for one in fakes.commands if (one.plugin, one.verb) == ("first", "ADD")]
    assert request.stdin["runtimeConfig"] == {
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]
    }
    assert added.ignored == ("mac",)


async def test_a_failure_undoes_all_networks(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """The networks before the failed one are deleted in reverse order, and nothing stays stored."""
    fakes.install("third", ADD=FAILED)
    with pytest.raises(PluginFailed, match="xtables lock is held") as caught:
        await Sandbox(cached, "c1").add(NETNS, [BLUE, GREEN, RED])
    assert calls(fakes, "DEL") == [("third", "eth1"), ("second", "eth0"), ("first", "eth0"), ("loopback", "lo")]
    assert await cached.attachments() == ()
    assert not hasattr(caught.value, "__notes__")


async def test_what_cannot_be_undone_stays_stored(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """The error is that of the ADD, a note names the pending DEL, and a later delete completes it."""
    fakes.install("third", ADD=FAILED)
    fakes.install("first", ADD={"result": RESULT}, DEL=[FAILED, FAILED, {}])
    sandbox = Sandbox(cached, "c1")
    with pytest.raises(PluginFailed) as caught:
        await sandbox.add(NETNS, [RED, GREEN])
    (note,) = caught.value.__notes__
    assert "eth0 on red could not be undone, its DEL is pending" in note
    assert [one.network for one in await sandbox.attachments()] == ["red"]
    await sandbox.delete()
    assert await cached.attachments() == ()


async def test_delete_needs_the_container_id_only(fakes: FakePlugins, tmp_path: Path) -> None:
    """Another program deletes with the stored lists and arguments, without configurations, and may repeat it."""
    cache = tmp_path / "cache"
    first = CachedRuntime(Runtime(fakes.directory, LIMITS), FileCache(cache))
    ports = Capabilities(port_mappings=(PortMapping(host_port=8080, container_port=80),))
    await Sandbox(first, "c1").add(NETNS, [SandboxNetwork(network=BLUE, capabilities=ports), RED])
    await Sandbox(first, "c2").add(NETNS, [GREEN])
    other = CachedRuntime(Runtime(fakes.directory, LIMITS), FileCache(cache))
    for _ in range(2):
        await Sandbox(other, "c1").delete()
    assert calls(fakes, "DEL") == [("loopback", "lo"), ("first", "eth1"), ("second", "eth0"), ("first", "eth0")]
    deleted = [one for one in fakes.commands if one.verb == "DEL" and one.environment["CNI_IFNAME"] == "eth0"]
    assert all("runtimeConfig" in one.stdin for one in deleted)
    assert await list_sandboxes(other) == ("c2",)


async def test_delete_tries_all_networks(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """One that fails stays stored, is reported, and keeps no other; with force it is forgotten."""
    fakes.install("first", ADD={"result": RESULT}, DEL=FAILED)
    sandbox = Sandbox(cached, "c1")
    await sandbox.add(NETNS, [GREEN, RED])
    with pytest.raises(SandboxFailed, match="xtables lock is held") as caught:
        await sandbox.delete()
    assert len(caught.value.errors) == 1
    assert [one.network for one in await sandbox.attachments()] == ["red"]
    await sandbox.delete(force=True)
    assert await sandbox.attachments() == ()


async def test_delete_does_not_succeed_beside_a_damaged_record(fakes: FakePlugins, tmp_path: Path) -> None:
    """The record may be the container's: delete removes the others and names the file; no other container minds."""
    cached = CachedRuntime(Runtime(fakes.directory, LIMITS), FileCache(tmp_path))
    await Sandbox(cached, "c1").add(NETNS, [RED, GREEN])
    damaged = tmp_path / "results" / "red-c1-eth0"
    damaged.write_bytes(b"{")
    with pytest.raises(SandboxFailed, match="red-c1-eth0"):
        await Sandbox(cached, "c1").delete()
    assert [file.name for file in (tmp_path / "results").iterdir()] == ["red-c1-eth0"]
    await Sandbox(cached, "other").delete()


async def test_check_asks_all_networks(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """Each failure is reported; a container without attachments fails as a whole."""
    sandbox = Sandbox(cached, "c1")
    with pytest.raises(SandboxFailed, match="it has no attachment") as nothing:
        await sandbox.check()
    assert nothing.value.code == 3
    await sandbox.add(NETNS, [RED, GREEN])
    await sandbox.check()
    assert calls(fakes, "CHECK") == [("first", "eth0"), ("third", "eth1"), ("loopback", "lo")]
    fakes.install("first", ADD={"result": RESULT}, CHECK=FAILED)
    with pytest.raises(SandboxFailed, match="xtables") as caught:
        await sandbox.check()
    assert len(caught.value.errors) == 1
    assert calls(fakes, "CHECK")[-1] == ("loopback", "lo")


async def test_garbage_of_all_networks(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """Containers that no longer exist lose all attachments; the plugins' GC receives those that stay."""
    for container in ("c1", "c2"):
        await Sandbox(cached, container).add(NETNS, [RED, GREEN])
    await collect_sandboxes(cached, [RED], ["c2"])
    assert await list_sandboxes(cached) == ("c2",)
    assert {one.plugin for one in fakes.commands if one.verb == "DEL"} == {"first", "third", "loopback"}
    (collected,) = [one for one in fakes.commands if one.verb == "GC"]
    assert collected.stdin["cni.dev/valid-attachments"] == [{"containerID": "c2", "ifname": "eth0"}]
    with pytest.raises(TypeError, match="valid must be a collection"):
        await collect_sandboxes(cached, [RED], "c2")


async def test_the_status_of_all_networks(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """All are asked, in the version that ADD would use; the first error has the others as notes."""
    networks = [
        NetworkConfigurationList.from_document({"name": name, "cniVersion": "1.1.0", "plugins": [{"type": name}]})
        for name in ("ready", "full", "late")
    ]
    for network, failure in zip(networks, (None, 50, 51), strict=True):
        fails: JsonObject = {} if failure is None else {"STATUS": {"error": {"code": failure, "msg": "wait"}}}
        fakes.install(
            network.name, VERSION={"result": {"cniVersion": "1.1.0", "supportedVersions": ["1.1.0"]}}, **fails
        )
    await cached.status(networks[0])
    with pytest.raises(PluginFailed, match="full") as failed:
        await cached.status(*networks)
    assert failed.value.code == 50
    assert "late" in failed.value.__notes__[0]


async def test_an_interrupted_add_is_deleted(cached: CachedRuntime, fakes: FakePlugins) -> None:
    """What an earlier run has begun is stored, so delete finds it."""
    fakes.install("first", ADD={"result": RESULT}, DEL=[FAILED, FAILED, {}])
    attachment = Attachment(container_id="c1", ifname="eth0", netns=NETNS)
    fakes.install("second", ADD=FAILED)
    with pytest.raises(PluginFailed):
        await cached.add(BLUE, attachment)
    assert await list_sandboxes(cached) == ("c1",)
    await Sandbox(cached, "c1").delete()
    assert await list_sandboxes(cached) == ()


def test_the_default_network(tmp_path: Path) -> None:
    """It is the first list in order of precedence, or the one with the given name."""
    found = ConfigurationDirectories(tmp_path)
    with pytest.raises(ConfigurationNotFound):
        found.index().default()
    for file, name in (("20-b.conflist", "blue"), ("10-a.conflist", "red")):
        (tmp_path / file).write_text(f'{{"name": "{name}", "cniVersion": "1.0.0", "plugins": [{{"type": "bridge"}}]}}')
    assert found.index().default().name == "red"
    assert found.index().default("blue").name == "blue"


def test_the_loopback_list_offers_old_versions() -> None:
    """An old `loopback` can run it."""
    assert LOOPBACK.cni_versions == ("1.0.0", "0.4.0", "0.3.1")
