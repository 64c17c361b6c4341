# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which CNI version is negotiated for a list, and how often a plugin receives VERSION."""

import asyncio
import os
from pathlib import Path

import pytest

from cni_bridge_spec import JsonValue
from cni_invoker import Limits, NetworkConfigurationList, PluginFailed, Runtime
from cni_invoker.errors import BadResult, PluginNotFound, VersionUnsupported
from tests.plugins import FakePlugins
from tests.records import list_of


@pytest.fixture(name="plugins")
def make_plugins(tmp_path: Path) -> FakePlugins:
    """A current plugin, and an IPAM plugin that supports no version newer than 1.0.0."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("bridge")
    plugins.install("host-local", VERSION={"supportedVersions": ["0.3.1", "0.4.0", "1.0.0"]})
    return plugins


@pytest.fixture(name="runtime")
def make_runtime(plugins: FakePlugins) -> Runtime:
    """A runtime that finds these plugins."""
    return Runtime([plugins.directory], Limits(version_s=20.0, grace_s=0.3))


def network(*versions: str, **further: JsonValue) -> NetworkConfigurationList:
    """Make a list that offers these versions."""
    plugins: JsonValue = [{"type": "bridge", "ipam": {"type": "host-local"}}]
    return NetworkConfigurationList.from_document(
        {"name": "net", "cniVersions": list(versions), "plugins": plugins, **further}
    )


async def test_no_common_version_is_an_error(runtime: Runtime, plugins: FakePlugins) -> None:
    """The error lists the versions of the configuration, of each plugin and of this runtime."""
    plugins.install("bridge", VERSION={"supportedVersions": ["1.1.0"]})
    with pytest.raises(VersionUnsupported) as caught:
        await runtime.negotiate(network("1.0.0", "1.1.0"))
    assert str(caught.value) == (
        "no CNI version fits network net: its configuration offers 1.1.0, 1.0.0; plugin bridge supports 1.1.0; "
        "plugin host-local supports 0.3.1, 0.4.0, 1.0.0; "
        "this runtime supports 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
    )
    assert caught.value.code == 1


async def test_the_answer_to_version_is_cached_until_the_file_changes(runtime: Runtime, plugins: FakePlugins) -> None:
    """A plugin receives VERSION once, and again after its modification time has changed."""
    for _ in range(2):
        await runtime.negotiate(network("1.0.0", "1.1.0"))
    assert list(plugins.calls) == [("bridge", "VERSION"), ("host-local", "VERSION")]
    path = plugins.install("host-local")
    os.utime(path, ns=(1, 1))
    assert (await runtime.negotiate(network("1.0.0", "1.1.0"))).cni_version == "1.1.0"
    assert list(plugins.calls[2:]) == [("host-local", "VERSION")]


async def test_a_replaced_plugin_receives_version_again(runtime: Runtime, plugins: FakePlugins, tmp_path: Path) -> None:
    """A replacement with the same size and modification time is noticed."""
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


async def test_a_plugin_without_version_supports_0_1_0(runtime: Runtime, plugins: FakePlugins) -> None:
    """A plugin that rejects VERSION as an unknown command supports 0.1.0."""
    plugins.install("bridge", VERSION={"error": {"code": 4, "msg": "unknown CNI_COMMAND: VERSION"}})
    assert (await runtime.version("bridge")).supported == ("0.1.0",)


async def test_a_failed_version_is_not_cached_and_restricts_nothing(runtime: Runtime, plugins: FakePlugins) -> None:
    """VERSION is sent every time, and the choice ignores the plugin: libcni runs such a list without VERSION."""
    plugins.install("bridge", VERSION=[{"error": {"code": 4, "msg": "banana"}}, {"stdout": "{{{"}])
    with pytest.raises(PluginFailed, match=r'plugin type="bridge" failed \(version\): banana'):
        await runtime.version("bridge")
    with pytest.raises(BadResult, match=r'plugin type="bridge" failed \(version\): .*decoding version info'):
        await runtime.version("bridge")
    assert (await runtime.negotiate(network("0.4.0", "1.0.0", "1.1.0"))).cni_version == "1.0.0"  # host-local's
    assert [plugin for plugin, _ in plugins.calls] == ["bridge", "bridge", "bridge", "host-local"]


async def test_a_plugin_that_hangs_at_version_restricts_nothing(plugins: FakePlugins) -> None:
    """Such a plugin may still complete its ADD."""
    plugins.install("bridge", VERSION={"sleep_s": 60})
    runtime = Runtime([plugins.directory], Limits(version_s=0.3, grace_s=0.3))
    plugins.install("host-local")
    assert (await runtime.negotiate(network("0.4.0", "1.0.0"))).cni_version == "1.0.0"


@pytest.mark.parametrize("version", ["1.1.0", "0.2.0"])
async def test_a_list_that_offers_one_version_is_not_negotiated(
    runtime: Runtime, plugins: FakePlugins, version: str
) -> None:
    """Its version is used, as in libcni, even if a plugin's answer to VERSION omits it; no plugin receives VERSION."""
    plugins.install("bridge", VERSION={"supportedVersions": ["0.4.0", "1.0.0"]})
    one = list_of({"type": "bridge", "ipam": {"type": "host-local"}}, name="net", version=version)
    assert await runtime.negotiate(one) is one
    assert plugins.calls == ()


async def test_a_list_of_an_unknown_version_is_rejected(runtime: Runtime) -> None:
    """A list whose only version this runtime does not support raises VersionUnsupported."""
    with pytest.raises(VersionUnsupported, match=r"its configuration offers 0\.999\.0; this runtime supports 0\.1\.0"):
        await runtime.negotiate(list_of({"type": "bridge"}, name="net", version="0.999.0"))


@pytest.mark.parametrize("versions", [("1.0.0",), ("1.0.0", "1.1.0")])
async def test_a_missing_plugin_is_an_error(runtime: Runtime, plugins: FakePlugins, versions: tuple[str, ...]) -> None:
    """The error names the plugin, whether the list offers one version or several."""
    (plugins.directory / "bridge").unlink()
    with pytest.raises(PluginNotFound, match="bridge"):
        await runtime.negotiate(network(*versions))


@pytest.mark.parametrize("versions", [("1.0.0",), ("1.0.0", "1.1.0")])
async def test_an_ipam_type_without_executable_restricts_nothing(
    runtime: Runtime, plugins: FakePlugins, versions: tuple[str, ...]
) -> None:
    """The plugin may implement that IPAM type itself; the other plugins decide."""
    (plugins.directory / "host-local").unlink()
    assert (await runtime.negotiate(network(*versions))).cni_version == versions[-1]


async def test_an_ipam_type_that_cannot_be_executed_restricts_nothing(runtime: Runtime, plugins: FakePlugins) -> None:
    """A file that is not a program counts as missing."""
    (plugins.directory / "host-local").write_text("data")
    assert (await runtime.negotiate(network("1.0.0", "1.1.0"))).cni_version == "1.1.0"


async def test_concurrent_version_requests_share_one_execution(runtime: Runtime, plugins: FakePlugins) -> None:
    """The plugin runs once, and all callers get its answer."""
    plugins.install("bridge", VERSION={"sleep_s": 0.3, "supportedVersions": ["1.0.0"]})
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(runtime.version("bridge")) for _ in range(5)]
    assert {task.result().supported for task in asking} == {("1.0.0",)}
    assert plugins.calls == (("bridge", "VERSION"),)


async def test_concurrent_version_requests_share_a_failure(runtime: Runtime, plugins: FakePlugins) -> None:
    """All concurrent callers get the one failure; a later caller runs the plugin again."""
    plugins.install(
        "bridge", VERSION=[{"sleep_s": 0.3, "error": {"code": 4, "msg": "banana"}}, {"supportedVersions": ["1.0.0"]}]
    )
    answers = await asyncio.gather(*(runtime.version("bridge") for _ in range(5)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [PluginFailed] * 5
    await runtime.version("bridge")
    assert len(plugins.calls) == 2


async def test_cancelling_one_version_request_does_not_cancel_the_others(
    runtime: Runtime, plugins: FakePlugins
) -> None:
    """If the caller whose execution is shared is cancelled, another caller runs the plugin."""
    plugins.install("bridge", VERSION=[{"sleep_s": 60}, {"supportedVersions": ["1.0.0"]}])
    async with asyncio.TaskGroup() as tasks:
        asking = [tasks.create_task(runtime.version("bridge")) for _ in range(3)]
        while not plugins.calls:  # noqa: ASYNC110  # another process writes it
            await asyncio.sleep(0.02)
        asking[0].cancel()
    assert asking[0].cancelled()
    assert asking[1].result() == asking[2].result()
    assert len(plugins.calls) == 2
