# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A host that takes its addresses from etcd by the plugin `cni-ipam-etcd`, as it is installed."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, AttachmentKey, NetworkConfigurationList, Result
from cni_invoker.sync import Runtime

__all__ = ["PLUGIN", "TIMEOUT_S", "Node"]

PLUGIN: Final = Path(sys.executable).with_name("cni-ipam-etcd")
TIMEOUT_S: Final = 3.0
SUBNET: Final[JsonObject] = {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.100", "rangeEnd": "10.1.0.109"}


class Node:
    """One of the hosts that use an etcd, with a network that no other test has.

    Args:
        directory: Has the plugin, and gets files.
        endpoints: The members.
        name: The node's name.
        network: The network's name.
    """

    def __init__(self, directory: Path, endpoints: Sequence[str], name: str, network: str) -> None:
        self._cni = Runtime([directory, Path("/usr/lib/cni")])
        self._directory = directory
        self.etcd: dict[str, JsonValue] = {"endpoints": list(endpoints), "node": name, "timeout": TIMEOUT_S}
        self.network = network
        self.section: dict[str, JsonValue] = {"ranges": [[SUBNET]]}

    def other(self, name: str) -> "Node":
        """Another host of the same network."""
        made = Node(self._directory, [], name, self.network)
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
        return self._cni.add(self.configuration(plugin), self.attachment(container, ips, args))

    def addresses(self, container: str, ips: Sequence[str] = (), args: str = "") -> list[str]:
        """The addresses of an ADD."""
        return [str(ip.address.ip) for ip in self.add(container, ips=ips, args=args).ips]

    def delete(self, container: str) -> None:
        """DEL."""
        self._cni.delete(self.configuration(), self.attachment(container), None)

    def check(self, container: str, result: Result) -> None:
        """CHECK."""
        self._cni.check(self.configuration(), self.attachment(container), result)

    def gc(self, *valid: str) -> None:
        """GC."""
        self._cni.gc(self.configuration(), [AttachmentKey(container_id=one, ifname="eth0") for one in valid])

    def status(self) -> None:
        """STATUS."""
        self._cni.status(self.configuration())

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
