# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A runtime that remembers: what DEL, CHECK and GC need is there, whatever happened since ADD."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cni_invoker import (
    Attachment,
    AttachmentExists,
    AttachmentKey,
    BadConfiguration,
    BadResult,
    CacheDamaged,
    CachedAttachment,
    CachedRuntime,
    CacheError,
    FileCache,
    GcFailed,
    InvalidParameter,
    Limits,
    MemoryCache,
    NetworkBusy,
    NetworkConfigurationList,
    NotAttached,
    PluginFailed,
    PluginNotFound,
    Runtime,
    VerbUnsupported,
)
from spec import JsonObject, JsonValue, get_objects
from tests.plugins import Command, FakePlugins

BOOT = "this-boot"
LIMITS = Limits(add_s=20.0, delete_s=20.0, check_s=20.0, gc_s=20.0, version_s=20.0, grace_s=0.3, executions=4)
RESULT: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
BANANA: JsonObject = {"error": {"code": 999, "msg": "plugin error: banana"}}
ATTACHMENT = Attachment(
    container_id="c1", ifname="eth0", netns="/run/netns/c1", args=(("K", "V"),), capability_args={"mac": "02::"}
)
KEY = ATTACHMENT.key


def network(*plugins: JsonValue, **keys: JsonValue) -> NetworkConfigurationList:
    """Make a list."""
    document: JsonObject = {"name": "blue", "cniVersion": "1.1.0", "plugins": list(plugins), **keys}
    return NetworkConfigurationList.from_document(document)


FIRST: JsonObject = {"type": "first", "capabilities": {"mac": True}}
BLUE = network(FIRST, {"type": "second"})


class Scene:
    """Two fake plugins, a cache, and a runtime over both."""

    def __init__(self, directory: Path) -> None:
        self.plugins = FakePlugins(directory / "bin")
        self.plugins.install("first", ADD={"result": RESULT})
        self.plugins.install("second", ADD={"passthrough": True})
        self.cache = MemoryCache()
        self.stateless = Runtime([self.plugins.directory], LIMITS)
        self.runtime = CachedRuntime(self.stateless, self.cache, boot_id=BOOT)

    @property
    def commands(self) -> tuple[Command, ...]:
        """What the plugins were asked, but for their versions."""
        return tuple(command for command in self.plugins.commands if command.verb != "VERSION")

    @property
    def calls(self) -> list[str]:
        """The same, as plugin and verb."""
        return [f"{command.plugin} {command.verb}" for command in self.commands]


@pytest.fixture(name="scene")
def make_scene(tmp_path: Path) -> Scene:
    """What a test starts from."""
    return Scene(tmp_path)


async def test_from_add_to_delete(scene: Scene) -> None:
    """CHECK and DEL are told the result of ADD; DEL ends the memory of it, and may be repeated."""
    result = await scene.runtime.add(BLUE, ATTACHMENT)
    assert result.document == RESULT
    (kept,) = await scene.runtime.attachments("blue")
    assert (kept.attachment, kept.result, kept.boot_id) == (ATTACHMENT, RESULT, BOOT)
    await scene.runtime.check(BLUE, ATTACHMENT)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert await scene.runtime.attachments() == ()
    await scene.runtime.delete(BLUE, ATTACHMENT)
    deletes = ["second DEL", "first DEL"]
    assert scene.calls == ["first ADD", "second ADD", "first CHECK", "second CHECK", *deletes, *deletes]
    assert [command.stdin.get("prevResult") for command in scene.commands[2:]] == [RESULT] * 4 + [None] * 2


async def test_later_verbs_are_given_what_add_was_given(scene: Scene) -> None:
    """An edited list, another namespace and forgotten arguments do not get through to CHECK and DEL."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    edited = network({"type": "first", "edited": True})
    forgotten = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/other")
    await scene.runtime.check(edited, forgotten)
    await scene.runtime.delete(edited, forgotten)
    assert scene.calls[2:] == ["first CHECK", "second CHECK", "second DEL", "first DEL"]
    for command in scene.commands:
        assert "edited" not in command.stdin
        assert command.stdin.get("runtimeConfig") == ({"mac": "02::"} if command.plugin == "first" else None)
        assert (command.environment["CNI_NETNS"], command.environment["CNI_ARGS"]) == ("/run/netns/c1", "K=V")


async def test_the_version_stays_that_of_add(scene: Scene) -> None:
    """The version that was agreed on for ADD is that of DEL, whatever plugins support by then."""
    offering = network(FIRST, cniVersions=["0.4.0", "1.0.0", "1.1.0"])
    versions: list[JsonValue] = ["0.4.0", "1.0.0"]
    scene.plugins.install("first", ADD={"result": {}}, VERSION={"supportedVersions": versions})
    await scene.runtime.add(offering, ATTACHMENT)
    versions.append("1.1.0")
    scene.plugins.install("first", VERSION={"supportedVersions": versions})
    await scene.runtime.delete(offering, ATTACHMENT)
    assert [command.stdin["cniVersion"] for command in scene.commands] == ["1.0.0", "1.0.0"]


@pytest.mark.parametrize(("slow", "result"), [("first", None), ("second", RESULT)])
async def test_it_is_remembered_before_a_plugin_runs(scene: Scene, slow: str, result: JsonObject | None) -> None:
    """A crash, or a cancellation, at any point of ADD leaves what its DEL needs."""
    scene.plugins.install(slow, ADD={"sleep_s": 60})
    async with asyncio.TaskGroup() as tasks:
        adding = tasks.create_task(scene.runtime.add(BLUE, ATTACHMENT))
        async with asyncio.timeout(20):
            while f"{slow} ADD" not in scene.calls:  # noqa: ASYNC110  # a file is polled
                await asyncio.sleep(0.02)
        (kept,) = await scene.runtime.attachments()
        adding.cancel()
    assert kept.result == result
    assert await scene.runtime.attachments() == (kept,)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls[-2:] == ["second DEL", "first DEL"]
    assert [command.stdin.get("prevResult") for command in scene.commands[-2:]] == [result] * 2


async def test_a_failed_add_is_undone(scene: Scene) -> None:
    """Every plugin gets its DEL before the error is reported, and nothing is remembered."""
    scene.plugins.install("second", ADD=BANANA)
    with pytest.raises(PluginFailed, match="banana") as caught:
        await scene.runtime.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second ADD", "second DEL", "first DEL"]
    assert [command.stdin["prevResult"] for command in scene.commands[2:]] == [RESULT] * 2
    assert await scene.runtime.attachments() == ()
    assert not hasattr(caught.value, "__notes__")


async def test_a_failed_add_that_cannot_be_undone(scene: Scene) -> None:
    """The error is that of ADD; that a DEL is still owed is noted at it, and remembered."""
    scene.plugins.install("first", ADD={"result": RESULT}, DEL={"error": {"code": 999, "msg": "stuck"}})
    scene.plugins.install("second", ADD=BANANA)
    with pytest.raises(PluginFailed, match="banana") as caught:
        await scene.runtime.add(BLUE, ATTACHMENT)
    (note,) = caught.value.__notes__
    assert "a DEL is still owed" in note
    assert "stuck" in note
    scene.plugins.install("first")
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert await scene.runtime.attachments() == ()


async def test_a_plugin_that_never_works(scene: Scene) -> None:
    """One that fails its ADD, and its DEL for the same reason, does not keep the others from undoing theirs."""
    scene.plugins.install("second", ADD=BANANA, DEL=BANANA)
    with pytest.raises(PluginFailed) as caught:
        await scene.runtime.add(BLUE, ATTACHMENT)
    assert not hasattr(caught.value, "__notes__")
    assert scene.calls == ["first ADD", "second ADD", "second DEL", "second DEL", "first DEL"]
    assert await scene.runtime.attachments() == ()


async def test_gc_of_what_a_crash_has_cut_off(scene: Scene) -> None:
    """The plugin that never came to its end may refuse its DEL there too."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, answered=1))
    scene.plugins.install("second", DEL=BANANA)
    await scene.runtime.gc(BLUE, ())
    assert await scene.runtime.attachments() == ()


async def test_an_add_that_runs_nothing_leaves_nothing(scene: Scene) -> None:
    """What is refused before the first plugin is not remembered, and needs no DEL."""
    with pytest.raises(InvalidParameter):
        await scene.runtime.add(BLUE, replace(ATTACHMENT, netns=""))
    (scene.plugins.directory / "second").unlink()
    with pytest.raises(PluginNotFound):
        await scene.runtime.add(BLUE, ATTACHMENT)
    assert await scene.runtime.attachments() == ()
    assert scene.calls == []


async def test_nothing_runs_that_cannot_be_remembered(scene: Scene, tmp_path: Path) -> None:
    """Without a place to remember it, no plugin is run."""
    (tmp_path / "results").write_bytes(b"")
    runtime = CachedRuntime(scene.stateless, FileCache(tmp_path))
    with pytest.raises(CacheError):
        await runtime.add(BLUE, ATTACHMENT)
    assert scene.calls == []


async def test_a_result_that_cannot_be_remembered_is_undone(scene: Scene) -> None:
    """An ADD whose result is lost is no success; its DEL is told the result all the same."""

    class FullCache(MemoryCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            if cached.result is not None:
                raise CacheError("the cache", "No space left on device")
            await super().put(cached, new=new)

    cache = FullCache()
    runtime = CachedRuntime(scene.stateless, cache)
    with pytest.raises(CacheError, match="No space left"):
        await runtime.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second DEL", "first DEL"]
    assert scene.commands[-1].stdin["prevResult"] == RESULT
    assert await cache.list() == ()


@pytest.mark.parametrize("boot_id", [BOOT, ""])
async def test_nothing_is_added_twice(scene: Scene, boot_id: str) -> None:
    """A second ADD, which CNI forbids, and whose undo would take the first one down, is refused."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, boot_id=boot_id))
    with pytest.raises(AttachmentExists, match="eth0 of c1 is attached to blue already"):
        await scene.runtime.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second ADD"]
    await scene.runtime.add(BLUE, replace(ATTACHMENT, ifname="eth1"))


async def test_nothing_is_added_twice_at_once(scene: Scene) -> None:
    """Of two ADDs of the same at the same time one is refused."""
    outcomes = await asyncio.gather(
        scene.runtime.add(BLUE, ATTACHMENT), scene.runtime.add(BLUE, ATTACHMENT), return_exceptions=True
    )
    assert [type(outcome).__name__ for outcome in outcomes] == ["Result", "AttachmentExists"]
    assert scene.calls == ["first ADD", "second ADD"]


async def test_an_attachment_of_an_earlier_boot_is_deleted_first(scene: Scene) -> None:
    """Its namespace is gone, but addresses are still reserved for it, which would keep ADD from succeeding."""
    await CachedRuntime(scene.stateless, scene.cache, boot_id="earlier").add(BLUE, ATTACHMENT)
    await scene.runtime.add(BLUE, ATTACHMENT)
    add = ["first ADD", "second ADD"]
    assert scene.calls == [*add, "second DEL", "first DEL", *add]
    (kept,) = await scene.cache.list()
    assert kept.boot_id == BOOT


async def test_a_failed_delete_is_remembered(scene: Scene) -> None:
    """DEL stops at a plugin that fails; it can be repeated with all that it needs."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    scene.plugins.install("second", DEL=BANANA)
    with pytest.raises(PluginFailed, match=r'plugin type="second" failed \(delete\): plugin error: banana'):
        await scene.runtime.delete(BLUE, ATTACHMENT)
    assert "first DEL" not in scene.calls
    (kept,) = await scene.runtime.attachments()
    assert kept.result == RESULT


async def test_a_damaged_memory(scene: Scene, tmp_path: Path) -> None:
    """CHECK says so; DEL goes on with what it is given, and ends it."""
    runtime = CachedRuntime(scene.stateless, FileCache(tmp_path))
    file = tmp_path / "results" / "blue-c1-eth0"
    file.parent.mkdir()
    file.write_bytes(b"garbage")
    with pytest.raises(CacheDamaged):
        await runtime.check(BLUE, ATTACHMENT)
    assert scene.calls == []
    await runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls == ["second DEL", "first DEL"]
    assert "prevResult" not in scene.commands[0].stdin
    assert not file.exists()


async def test_a_result_of_a_version_nobody_knows(scene: Scene) -> None:
    """CHECK says so; DEL goes on without it."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, result={"cniVersion": "0.4567.0"}))
    with pytest.raises(BadResult, match=r'unsupported CNI result version "0\.4567\.0"'):
        await scene.runtime.check(BLUE, ATTACHMENT)
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert "prevResult" not in scene.commands[-1].stdin
    assert await scene.cache.list() == ()


@pytest.mark.parametrize("configuration", [None, {"name": "blue", "plugins": "none"}])
async def test_a_lost_list(scene: Scene, configuration: JsonObject | None) -> None:
    """Arguments and result are still used, with the list as it is now; without one there is no DEL."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    lost = replace(kept, configuration=configuration)
    await scene.cache.put(lost)
    with pytest.raises(BadConfiguration, match="has not been kept"):
        await scene.runtime.delete_cached(lost)
    await scene.runtime.delete(network(FIRST), replace(ATTACHMENT, args=()))
    assert scene.calls[2:] == ["first DEL"]
    assert scene.commands[-1].environment["CNI_ARGS"] == "K=V"
    assert scene.commands[-1].stdin["prevResult"] == RESULT


async def test_the_configuration_of_one_plugin(scene: Scene) -> None:
    """What libcni's AddNetwork has kept is no list, and is understood."""
    single: JsonObject = {"cniVersion": "1.0.0", "name": "blue", "type": "first"}
    await scene.cache.put(
        CachedAttachment(network="blue", attachment=ATTACHMENT, configuration=single, result=None, boot_id="")
    )
    await scene.runtime.delete(BLUE, ATTACHMENT)
    assert scene.calls == ["first DEL"]


async def test_check_of_what_is_not_attached(scene: Scene) -> None:
    """The specification forbids it; the versions of its list, and whether it may be checked at all, come first."""
    offering = network(FIRST, cniVersions=["1.0.0", "1.1.0"])
    with pytest.raises(NotAttached, match="eth0 of c1 is not attached to blue: add it first") as caught:
        await scene.runtime.check(offering, ATTACHMENT)
    assert (caught.value.code, caught.value.owed) == (3, False)
    for keys in ({}, {"disableCheck": True}):
        old: JsonObject = {"cniVersion": "0.3.1", "cniVersions": ["0.3.0"], **keys}
        with pytest.raises(VerbUnsupported, match="does not support the CHECK command"):
            await scene.runtime.check(network(FIRST, **old), ATTACHMENT)
    await scene.runtime.check(network(FIRST, disableCheck=True), ATTACHMENT)
    assert scene.plugins.calls == ()  # nobody was asked for versions either


@pytest.mark.parametrize("answered", [0, 1])
async def test_check_of_what_was_cut_off(scene: Scene, answered: int) -> None:
    """An ADD that did not come to its end is no attachment, though something is remembered."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.cache.list()
    await scene.cache.put(replace(kept, answered=answered, result=RESULT if answered else None))
    before = scene.calls
    with pytest.raises(NotAttached, match="did not come to its end; delete it, and add it again") as caught:
        await scene.runtime.check(BLUE, ATTACHMENT)
    assert caught.value.owed
    assert scene.calls == before


async def test_what_libcni_keeps_without_the_namespace(scene: Scene) -> None:
    """Before 1.2 it keeps none: the caller's is used, with the list and arguments that have been kept."""
    kept = replace(ATTACHMENT, netns="")
    await scene.cache.put(
        CachedAttachment(network="blue", attachment=kept, configuration=BLUE.document, result=RESULT, boot_id="")
    )
    forgetful = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/given")
    await scene.runtime.check(network({"type": "edited"}), forgetful)
    await scene.runtime.delete(network({"type": "edited"}), forgetful)
    assert scene.calls == ["first CHECK", "second CHECK", "second DEL", "first DEL"]
    for command in scene.commands:
        assert command.environment["CNI_NETNS"] == "/run/netns/given"
        assert command.environment["CNI_ARGS"] == "K=V"
        assert command.stdin.get("runtimeConfig") == ({"mac": "02::"} if command.plugin == "first" else None)


async def test_delete_without_a_configuration(scene: Scene) -> None:
    """What is remembered is enough, when the network is gone from the configuration directory."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    (kept,) = await scene.runtime.attachments()
    await scene.runtime.delete_cached(kept)
    assert scene.calls[2:] == ["second DEL", "first DEL"]
    assert await scene.runtime.attachments() == ()


async def add_three(scene: Scene) -> None:
    """Add c1 and c2 to blue, and c3 to red."""
    for name in ("c1", "c2"):
        await scene.runtime.add(BLUE, replace(ATTACHMENT, container_id=name))
    await scene.runtime.add(network(FIRST, name="red"), replace(ATTACHMENT, container_id="c3"))


async def test_gc_deletes_what_is_not_valid(scene: Scene) -> None:
    """A stale attachment gets the DEL it is owed, then plugins are told what is valid; other networks are let be."""
    await add_three(scene)
    valid = AttachmentKey(container_id="c2", ifname="eth0")
    before = len(scene.commands)
    await scene.runtime.gc(network(FIRST), [valid])
    later = scene.commands[before:]
    assert scene.calls[before:] == ["second DEL", "first DEL", "first GC"]
    assert later[0].environment["CNI_CONTAINERID"] == "c1"
    assert later[0].environment["CNI_ARGS"] == "K=V"
    assert later[1].stdin["runtimeConfig"] == {"mac": "02::"}
    assert get_objects(later[2].stdin, "cni.dev/valid-attachments") == ({"containerID": "c2", "ifname": "eth0"},)
    assert [kept.attachment.container_id for kept in await scene.runtime.attachments()] == ["c2", "c3"]


async def test_gc_of_everything_wants_to_be_told(scene: Scene) -> None:
    """An empty set is a decision; it is passed on as one."""
    await add_three(scene)
    await scene.runtime.gc(BLUE, ())
    assert await scene.runtime.attachments("blue") == ()
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == []


async def test_gc_goes_on_after_a_failure(scene: Scene) -> None:
    """All that can be deleted is; what failed is told, remembered, and for the plugins still valid."""
    await add_three(scene)
    scene.plugins.install("second", DEL=[BANANA, BANANA, {}], GC=BANANA)
    with pytest.raises(GcFailed) as caught:
        await scene.runtime.gc(BLUE, ())
    assert [str(error).count("banana") for error in caught.value.errors] == [1, 1]
    (kept,) = await scene.runtime.attachments("blue")
    assert kept.attachment.container_id == "c1"
    told = [command.stdin["cni.dev/valid-attachments"] for command in scene.commands if command.verb == "GC"]
    assert told == [[{"containerID": "c1", "ifname": "eth0"}]] * 2


async def test_gc_that_is_disabled(scene: Scene) -> None:
    """With disableGC nothing is deleted and nothing run."""
    await scene.runtime.add(BLUE, ATTACHMENT)
    before = scene.calls
    await scene.runtime.gc(network(FIRST, disableGC=True), ())
    assert scene.calls == before
    assert len(await scene.runtime.attachments()) == 1


async def test_gc_with_a_cache_that_cannot_be_read(scene: Scene, tmp_path: Path) -> None:
    """Nobody is taken for stale because nothing is known."""
    (tmp_path / "results").write_bytes(b"")
    with pytest.raises(CacheError):
        await CachedRuntime(scene.stateless, FileCache(tmp_path)).gc(BLUE, ())
    assert scene.calls == []


@pytest.mark.parametrize("first", ["add", "gc"])
async def test_gc_spares_what_comes_meanwhile(scene: Scene, first: str) -> None:
    """An ADD under way when GC is asked for, or that comes while GC waits, is in nobody's list of the valid."""
    scene.plugins.install("first", ADD={"result": RESULT, "sleep_s": 0.3})
    late = replace(ATTACHMENT, container_id="late")
    await scene.runtime.add(BLUE, ATTACHMENT)

    async def collect() -> None:
        await scene.runtime.gc(BLUE, ())

    async def add(attachment: Attachment) -> None:
        await scene.runtime.add(BLUE, attachment)

    async def later(work: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(0.1)
        await work()

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        if first == "add":
            tasks.create_task(add(late))
            tasks.create_task(later(collect))
        else:
            # A further ADD keeps GC waiting, so that the late one comes while it waits.
            tasks.create_task(add(replace(ATTACHMENT, container_id="early")))
            tasks.create_task(later(collect))
            tasks.create_task(later(lambda: later(lambda: add(late))))
    there = {kept.attachment.container_id for kept in await scene.runtime.attachments()}
    assert "c1" not in there
    assert "late" in there
    deleted = {command.environment["CNI_CONTAINERID"] for command in scene.commands if command.verb == "DEL"}
    assert deleted == {"c1"}
    told = [command.stdin for command in scene.commands if command.verb == "GC"]
    assert len(told) == 2
    for document in told:
        assert {"containerID": "late", "ifname": "eth0"} in get_objects(document, "cni.dev/valid-attachments")


class Halt:
    """A place where somebody stops until he is told to go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self._go = asyncio.Event()

    async def stop(self) -> None:
        """Stop here; once only."""
        self.reached.set()
        await self._go.wait()

    def go_on(self) -> None:
        """Let go."""
        self._go.set()


@pytest.mark.parametrize("of", ["attachment", "record"])
async def test_a_delete_during_an_add(scene: Scene, of: str) -> None:
    """It waits, and then deletes what the ADD has made by its end, not what was remembered half-way."""
    halt = Halt()

    class SlowCache(MemoryCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            await super().put(cached, new=new)
            await halt.stop()

    cache = SlowCache()
    runtime = CachedRuntime(scene.stateless, cache, boot_id=BOOT)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.add(BLUE, ATTACHMENT))
        await halt.reached.wait()
        (half,) = await cache.list()
        assert half.answered == 0
        tasks.create_task(runtime.delete(BLUE, ATTACHMENT) if of == "attachment" else runtime.delete_cached(half))
        await asyncio.sleep(0)  # it has begun
        halt.go_on()
    assert scene.calls == ["first ADD", "second ADD", "second DEL", "first DEL"]
    assert [command.stdin.get("prevResult") for command in scene.commands[2:]] == [RESULT] * 2
    assert await cache.list() == ()
    await runtime.delete_cached(half)
    assert len(scene.calls) == 4


async def test_two_processes_add_the_same(scene: Scene, tmp_path: Path) -> None:
    """The second waits for the first, is refused, and undoes nothing."""
    halt = Halt()

    class SlowCache(FileCache):
        async def put(self, cached: CachedAttachment, *, new: bool = False) -> None:
            await halt.stop()
            await super().put(cached, new=new)

    first = CachedRuntime(scene.stateless, SlowCache(tmp_path), boot_id=BOOT)
    other = Runtime([scene.plugins.directory], LIMITS)
    second = CachedRuntime(other, FileCache(tmp_path), boot_id=BOOT, wait_s=0.05)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(first.add(BLUE, ATTACHMENT))
        await halt.reached.wait()
        with pytest.raises(NetworkBusy):
            await second.add(BLUE, ATTACHMENT)
        halt.go_on()
    with pytest.raises(AttachmentExists):
        await second.add(BLUE, ATTACHMENT)
    assert scene.calls == ["first ADD", "second ADD"]


async def test_others_work_while_gc_deletes(scene: Scene) -> None:
    """A DEL that takes long holds up nobody but its own container."""
    halt = Halt()

    class SlowCache(MemoryCache):
        async def remove(self, network: str, key: AttachmentKey) -> None:
            await halt.stop()
            await super().remove(network, key)

    runtime = CachedRuntime(scene.stateless, SlowCache(), boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        tasks.create_task(runtime.gc(BLUE, ()))
        await halt.reached.wait()
        await runtime.add(BLUE, replace(ATTACHMENT, container_id="late"))
        assert len(await runtime.attachments()) == 2
        halt.go_on()
    assert [kept.attachment.container_id for kept in await runtime.attachments()] == ["late"]
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == [{"containerID": "late", "ifname": "eth0"}]


async def test_gc_looks_again(scene: Scene) -> None:
    """What another process has deleted and added again since it was listed is not stale."""

    class ChangingCache(MemoryCache):
        async def list(self, network: str | None = None, *, whole: bool = False) -> tuple[CachedAttachment, ...]:
            listed = await super().list(network, whole=whole)
            for cached in listed:
                await self.put(replace(cached, attachment=replace(cached.attachment, netns="/run/netns/new")))
            return listed

    runtime = CachedRuntime(scene.stateless, ChangingCache(), boot_id=BOOT)
    await runtime.add(BLUE, ATTACHMENT)
    await runtime.gc(BLUE, ())
    assert scene.calls[2:] == ["first GC", "second GC"]
    assert scene.commands[-1].stdin["cni.dev/valid-attachments"] == [{"containerID": "c1", "ifname": "eth0"}]


@pytest.mark.parametrize(
    ("kept", "deletes"),
    [
        ({}, ["second DEL", "first DEL"]),
        ({"loadOnlyInlinedPlugins": True}, ["first DEL"]),
        ({"plugins": [{"type": "first", "edited": True}]}, ["first DEL"]),
    ],
)
async def test_plugins_that_libcni_does_not_keep(scene: Scene, kept: JsonObject, deletes: list[str]) -> None:
    """Those from other files come from the list of now, as long as the rest of it is what it was."""
    inlined: JsonObject = {"name": "blue", "cniVersion": "1.1.0", "plugins": [FIRST]}
    now = NetworkConfigurationList.from_document(inlined, further=[{"type": "second"}])
    await scene.cache.put(
        CachedAttachment(
            network="blue", attachment=ATTACHMENT, configuration={**inlined, **kept}, result=RESULT, boot_id=""
        )
    )
    await scene.runtime.delete(now, ATTACHMENT)
    assert scene.calls == deletes
    assert [command.stdin["prevResult"] for command in scene.commands] == [RESULT] * len(deletes)
