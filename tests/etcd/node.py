# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A host that takes its addresses from etcd by the plugin `cni-ipam-etcd`, as it is installed."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, AttachmentKey, NetworkConfigurationList, PluginFailed, Result, Runtime
from cni_ipam_etcd.etcd import Etcd
from cni_ipam_etcd.plugin import PLUGIN as IN_PROCESS
from cni_ipam_etcd.settings import Settings

PLUGIN: Final = Path(sys.executable).with_name("cni-ipam-etcd")
TIMEOUT_S: Final = 3.0
_BUSY_S: Final = 5.0  # what a busy machine adds to that limit
_SUBNET: Final[JsonObject] = {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.100", "rangeEnd": "10.1.0.109"}


class Node:
    """One of the hosts that use an etcd, with a network that no other test has."""

    def __init__(
        self, directory: Path, endpoints: Sequence[str], name: str, network: str, *, in_process: bool = False
    ) -> None:
        plugins = directory / "plugins"
        plugins.mkdir(exist_ok=True)
        if not (plugins / PLUGIN.name).exists():
            (plugins / PLUGIN.name).symlink_to(PLUGIN)
        offered = {PLUGIN.name: IN_PROCESS.answer} if in_process else {}
        self._cni = Runtime([plugins, Path("/usr/lib/cni")], in_process=offered)
        self._in_process = in_process
        self._directory = directory
        self.etcd: dict[str, JsonValue] = {"endpoints": list(endpoints), "node": name, "timeout": TIMEOUT_S}
        self.network = network
        self.section: dict[str, JsonValue] = {"ranges": [[_SUBNET]]}

    def other(self, name: str) -> "Node":
        """Another host of the same network."""
        made = Node(self._directory, [], name, self.network, in_process=self._in_process)
        made.etcd, made.section = {**self.etcd, "node": name}, self.section
        return made

    def configuration(self, plugin: str = "cni-ipam-etcd") -> NetworkConfigurationList:
        """The network."""
        ipam: JsonObject = {**self.section, "type": plugin, **({"etcd": self.etcd} if plugin != "host-local" else {})}
        only: JsonObject = {"type": plugin, "capabilities": {"ips": True}, "ipam": ipam}
        version = "1.1.0" if plugin != "host-local" else "1.0.0"
        return NetworkConfigurationList.from_document({"cniVersion": version, "name": self.network, "plugins": [only]})

    def add(self, container: str, *, plugin: str = "cni-ipam-etcd", ips: Sequence[str] = (), args: str = "") -> Result:
        """ADD; `ips` requests addresses by the capability, `args` by CNI_ARGS."""
        return asyncio.run(self._cni.add(self.configuration(plugin), self.attachment(container, ips, args)))

    def addresses(self, container: str, ips: Sequence[str] = (), args: str = "") -> list[str]:
        """The addresses of an ADD."""
        return [str(ip.address.ip) for ip in self.add(container, ips=ips, args=args).ips]

    def delete(self, container: str) -> None:
        """DEL."""
        asyncio.run(self._cni.delete(self.configuration(), self.attachment(container), None))

    def check(self, container: str, result: Result) -> None:
        """CHECK."""
        asyncio.run(self._cni.check(self.configuration(), self.attachment(container), result))

    def gc(self, *valid: str) -> None:
        """GC."""
        asyncio.run(
            self._cni.gc(self.configuration(), [AttachmentKey(container_id=one, ifname="eth0") for one in valid])
        )

    def status(self) -> None:
        """STATUS."""
        asyncio.run(self._cni.status(self.configuration()))

    def attachment(self, container: str, ips: Sequence[str] = (), args: str = "") -> Attachment:
        """The attachment of a container; no namespace is needed."""
        return Attachment(
            container_id=container,
            ifname="eth0",
            netns="/run/netns/none",
            args=(("IP", args),) if args else (),
            capability_args={"ips": list(ips)} if ips else {},
        )

    def command(self, *words: str) -> str:
        """What a command of the operator prints on this node, on whichever output."""
        file = self._directory / f"{self.etcd['node']}.json"
        file.write_text(json.dumps(self.etcd), "utf-8")
        done = subprocess.run(
            [PLUGIN, *words, "--config", file],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout


@contextmanager
def failing(code: int, message: str) -> Iterator[None]:
    """The body fails with an error of the plugin, and not later than the plugin's limit allows."""
    with pytest.raises(PluginFailed, match=message) as caught:
        yield
    assert caught.value.duration_s < TIMEOUT_S + _BUSY_S
    assert caught.value.code == code


def writing(node: Node, *operations: JsonObject) -> None:
    """Do as another program would."""
    etcd = Etcd(Settings.of_section({"etcd": node.etcd}))
    assert etcd.transact([], operations) is None
    etcd.close()


def reading(node: Node, key: str) -> bytes:
    """Return a value, read as another program would."""
    etcd = Etcd(Settings.of_section({"etcd": node.etcd}))
    ((pair,), _) = etcd.read_range(key, key + "\0")
    etcd.close()
    return pair.value
