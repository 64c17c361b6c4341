# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon's GC with plugins of CNI 1.1.0: attachments without a record are removed, those of endpoints stay.

The reference plugins accept GC and do nothing (1.9.1); so the list has one more plugin, which implements it.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_bridge_state import EndpointRecord, Phase
from cni_bridge_state.store import Store
from cni_invoker import Attachment, FileCache, Limits, NetworkConfigurationList, Runtime
from cnm_bridge.driver.recovery.plugin_gc import EndpointCache, PluginGc
from tests.kernel.namespace import Namespace
from tests.kernel.real_plugins import find_plugins
from tests.records import endpoint

HOST = Namespace(Path("/proc/self/ns/net"))

LEDGER = """#!{python}
from pathlib import Path

from cni_invoker.plugin import Call, run_plugin

def file(call: Call) -> Path:
    return Path(call.config.get("directory", "/nowhere"), call.container_id)

def add(call: Call) -> None:
    file(call).touch()

def delete(call: Call) -> None:
    file(call).unlink(missing_ok=True)

def gc(call: Call) -> None:
    valid = {{one.container_id for one in call.valid_attachments}}
    for one in file(call).iterdir():
        if one.name not in valid:
            one.unlink()

run_plugin(add=add, delete=delete, gc=gc, versions=["1.0.0", "1.1.0"])
"""
"""A plugin that keeps a file for each container, and implements GC."""


@pytest.fixture(name="plugin_dirs")
def make_plugin_dirs(private_namespaces: int, tmp_path: Path) -> Iterator[list[Path]]:
    """The newer plugins, and `ledger`; their bridge is removed at the end."""
    assert private_namespaces
    fetched = find_plugins("fetched")
    own = tmp_path / "bin"
    own.mkdir()
    (own / "ledger").write_text(LEDGER.format(python=sys.executable))
    (own / "ledger").chmod(0o755)
    yield [own, fetched.directory]
    subprocess.run(["ip", "link", "delete", "cni-test0"], check=False)


def record(attachment: Attachment, network: NetworkConfigurationList, result: JsonObject) -> EndpointRecord:
    """Make the record of an endpoint."""
    made = endpoint(attachment.container_id, Phase.PENDING)
    stored = replace(
        made.attachment,
        ifname=attachment.ifname,
        netns=attachment.netns,
        configuration=network.document,
        cni_version=network.cni_version,
    )
    return replace(made, attachment=stored, added_plugins=len(network.plugins), result=result)


async def test_gc_removes_what_has_no_record(plugin_dirs: list[Path], tmp_path: Path) -> None:
    """Of two attached containers one has no record: GC removes the ledger's file for it, and nothing of the other's."""
    ledger, reserved = tmp_path / "ledger", tmp_path / "networks"
    ledger.mkdir()
    ipam: JsonObject = {"type": "host-local", "dataDir": str(reserved), "ranges": [[{"subnet": "10.99.0.0/24"}]]}
    runtime = Runtime(plugin_dirs, Limits())
    bridge: JsonObject = {"type": "bridge", "bridge": "cni-test0", "isGateway": True, "ipam": ipam}
    network = await runtime.negotiate(
        NetworkConfigurationList.from_document(
            {"cniVersion": "1.1.0", "name": "blue", "plugins": [bridge, {"type": "ledger", "directory": str(ledger)}]}
        )
    )
    store = Store.open(tmp_path / "state")
    with ExitStack() as everything:
        everything.callback(store.close)
        results = {}
        for name in ("kept", "lost"):
            HOST.ip(f"netns add {name}")
            everything.callback(HOST.ip, f"netns del {name}")
            attachment = Attachment(container_id=name, ifname="eth0", netns=f"/run/netns/{name}")
            results[name] = attachment, await runtime.add(network, attachment)
        kept, result = results["kept"]
        await store.put_endpoint(record(kept, network, result.document))
        plugin_gc = PluginGc(runtime, EndpointCache(store), [FileCache()])
        assert {file.name for file in ledger.iterdir()} == {"kept", "lost"}
        await plugin_gc.collect([network])
        assert {file.name for file in ledger.iterdir()} == {"kept"}
        (address,) = result.addresses_of("eth0")
        assert Namespace(Path(kept.netns)).addresses("eth0") == [str(address)]
        assert (reserved / "blue" / str(address.ip)).exists()
        for attachment, added in results.values():
            await runtime.delete(network, attachment, added)
