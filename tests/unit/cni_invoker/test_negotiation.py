# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which version a list is spoken in, and how often plugins are asked."""

import asyncio
import os
from pathlib import Path

import pytest

from cni_invoker import (
    BadResult,
    Limits,
    NetworkConfigurationList,
    NoCommonVersion,
    PluginFailed,
    PluginNotFound,
    Runtime,
)
from spec import JsonValue
from tests.plugins import FakePlugins


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """A plugin of today and an IPAM plugin that stops at 1.0.0."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("bridge")
    plugins.install("host-local", VERSION={"supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]})
    return plugins


@pytest.fixture(name="runtime")
def make_runtime(plugins: FakePlugins) -> Runtime:
    """A runtime that finds them."""
    return Runtime([plugins.directory], Limits(version_s=20.0, grace_s=0.3))


def network(*versions: str, **further: JsonValue) -> NetworkConfigurationList:
    """Make a list that offers these versions."""
    plugins: JsonValue = [{"type": "bridge", "ipam": {"type": "host-local"}}]
    return NetworkConfigurationList.from_document(
        {"name": "net", "cniVersions": list(versions), "plugins": plugins, **further}
    )


async def test_the_newest_version_that_everybody_speaks(runtime: Runtime) -> None:
    """What the IPAM plugin does not speak is not spoken."""
    found = await runtime.negotiate(network("0.4.0", "1.0.0", "1.1.0"))
    assert found.cni_version == "1.0.0"
    assert NetworkConfigurationList.from_document(found.document) == found


async def test_when_nothing_fits(runtime: Runtime, plugins: FakePlugins) -> None:
    """The error says who speaks what."""
    plugins.install("bridge", VERSION={"supportedVersions": ["1.1.0"]})
    with pytest.raises(NoCommonVersion) as caught:
        await runtime.negotiate(network("1.0.0", "1.1.0"))
    assert str(caught.value) == (
        "no CNI version fits network net: its configuration offers 1.1.0, 1.0.0; plugin bridge supports 1.1.0; "
        "plugin host-local supports 0.3.1, 0.4.0, 1.0.0; "
        "this runtime supports 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
    )
    assert caught.value.code == 1
    assert caught.value.plugins == {"bridge": ("1.1.0",), "host-local": ("0.3.1", "0.4.0", "1.0.0")}


async def test_a_version_that_only_plugins_know(runtime: Runtime, plugins: FakePlugins) -> None:
    """What this runtime does not speak is not chosen."""
    for plugin in ("bridge", "host-local"):
        plugins.install(plugin, VERSION={"supportedVersions": ["0.999.0", "0.4.0"]})
    assert (await runtime.negotiate(network("0.999.0", "0.4.0"))).cni_version == "0.4.0"


async def test_plugins_are_asked_once(runtime: Runtime, plugins: FakePlugins) -> None:
    """Who has answered is not asked again until its file changes."""
    for _ in range(2):
        await runtime.negotiate(network("1.0.0", "1.1.0"))
    assert list(plugins.calls) == [("bridge", "VERSION"), ("host-local", "VERSION")]
    path = plugins.install("host-local")
    os.utime(path, ns=(1, 1))
    assert (await runtime.negotiate(network("1.0.0", "1.1.0"))).cni_version == "1.1.0"
    assert list(plugins.calls[2:]) == [("host-local", "VERSION")]


async def test_a_replaced_plugin_is_asked_again(runtime: Runtime, plugins: FakePlugins, tmp_path: Path) -> None:
    """A package that keeps the time of its files and their size is noticed as well."""
    path = plugins.directory / "bridge"
    status = path.stat()
    await runtime.version("bridge")
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    copy.chmod(0o755)
    os.utime(copy, ns=(status.st_atime_ns, status.st_mtime_ns))
    copy.rename(path)
    await runtime.version("bridge")
    assert plugins.calls == (("bridge", "VERSION"), ("bridge", "VERSION"))


async def test_a_plugin_from_before_version(runtime: Runtime, plugins: FakePlugins) -> None:
    """Who does not know VERSION speaks 0.1.0."""
    plugins.install("bridge", VERSION={"error": {"code": 4, "msg": "unknown CNI_COMMAND: VERSION"}})
    assert (await runtime.version("bridge")).supported == ("0.1.0",)


async def test_a_plugin_that_does_not_tell(runtime: Runtime, plugins: FakePlugins) -> None:
    """It is asked every time, and does not restrict the choice: libcni, which does not ask, runs such a list."""
    plugins.install("bridge", VERSION=[{"error": {"code": 4, "msg": "banana"}}, {"stdout": "{{{"}])
    with pytest.raises(PluginFailed, match=r'plugin type="bridge" failed \(version\): banana'):
        await runtime.version("bridge")
    with pytest.raises(BadResult, match=r'plugin type="bridge" failed \(version\): .*decoding version info'):
        await runtime.version("bridge")
    assert (await runtime.negotiate(network("0.4.0", "1.0.0", "1.1.0"))).cni_version == "1.0.0"  # host-local's
    assert [plugin for plugin, _ in plugins.calls] == ["bridge", "bridge", "bridge", "host-local"]


async def test_a_plugin_that_hangs_when_asked(plugins: FakePlugins) -> None:
    """It may still do its ADD."""
    plugins.install("bridge", VERSION={"sleep_s": 60})
    runtime = Runtime([plugins.directory], Limits(version_s=0.3, grace_s=0.3))
    plugins.install("host-local")
    assert (await runtime.negotiate(network("0.4.0", "1.0.0"))).cni_version == "1.0.0"


@pytest.mark.parametrize("version", ["1.1.0", "0.2.0"])
async def test_a_list_without_a_choice(runtime: Runtime, plugins: FakePlugins, version: str) -> None:
    """It is spoken in its version, as libcni does, even if a plugin's answer to VERSION omits it; nobody is asked."""
    plugins.install("bridge", VERSION={"supportedVersions": ["0.4.0", "1.0.0"]})
    one = NetworkConfigurationList.from_document(
        {"name": "net", "cniVersion": version, "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}]}
    )
    assert await runtime.negotiate(one) is one
    assert plugins.calls == ()


async def test_a_version_that_nobody_knows(runtime: Runtime) -> None:
    """A list of a version that this runtime does not speak is refused."""
    with pytest.raises(NoCommonVersion, match=r"its configuration offers 0\.999\.0; this runtime supports 0\.1\.0"):
        await runtime.negotiate(
            NetworkConfigurationList.from_document(
                {"name": "net", "cniVersion": "0.999.0", "plugins": [{"type": "bridge"}]}
            )
        )


@pytest.mark.parametrize("versions", [("1.0.0",), ("1.0.0", "1.1.0")])
async def test_a_missing_plugin(runtime: Runtime, plugins: FakePlugins, versions: tuple[str, ...]) -> None:
    """A plugin of the list that is not there is named, whatever the list offers."""
    (plugins.directory / "bridge").unlink()
    with pytest.raises(PluginNotFound, match="bridge"):
        await runtime.negotiate(network(*versions))


@pytest.mark.parametrize("versions", [("1.0.0",), ("1.0.0", "1.1.0")])
async def test_an_ipam_type_without_executable(
    runtime: Runtime, plugins: FakePlugins, versions: tuple[str, ...]
) -> None:
    """The name may be for the plugin itself, which does the work; the rest of the list decides."""
    (plugins.directory / "host-local").unlink()
    assert (await runtime.negotiate(network(*versions))).cni_version == versions[-1]


async def test_an_ipam_type_that_does_not_run(runtime: Runtime, plugins: FakePlugins) -> None:
    """A file of that name that is no program is as good as none."""
    (plugins.directory / "host-local").write_text("data")
    assert (await runtime.negotiate(network("1.0.0", "1.1.0"))).cni_version == "1.1.0"


async def test_many_who_want_to_know_at_once(runtime: Runtime, plugins: FakePlugins) -> None:
    """A plugin is asked once for all of them, and all get its answer."""
    plugins.install("bridge", VERSION={"sleep_s": 0.3, "supportedVersions": ["1.0.0"]})
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(runtime.version("bridge")) for _ in range(5)]
    assert {task.result().supported for task in asking} == {("1.0.0",)}
    assert plugins.calls == (("bridge", "VERSION"),)


async def test_many_who_want_to_know_what_is_not_told(runtime: Runtime, plugins: FakePlugins) -> None:
    """All of them get the one failure; who comes later asks again."""
    plugins.install(
        "bridge", VERSION=[{"sleep_s": 0.3, "error": {"code": 4, "msg": "banana"}}, {"supportedVersions": ["1.0.0"]}]
    )
    answers = await asyncio.gather(*(runtime.version("bridge") for _ in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [PluginFailed] * 5
    await runtime.version("bridge")
    assert len(plugins.calls) == 2


async def test_who_asks_for_all_may_give_up(runtime: Runtime, plugins: FakePlugins) -> None:
    """The others are not given up with him: the next one asks."""
    plugins.install("bridge", VERSION=[{"sleep_s": 60}, {"supportedVersions": ["1.0.0"]}])
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(runtime.version("bridge")) for _ in range(3)]
        while not plugins.calls:  # noqa: ASYNC110  # another process tells
            await asyncio.sleep(0.02)
        asking[0].cancel()
    assert asking[0].cancelled()
    assert asking[1].result() == asking[2].result()
    assert len(plugins.calls) == 2
