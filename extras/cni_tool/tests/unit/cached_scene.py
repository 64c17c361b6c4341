# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The scene of the `CachedRuntime` tests: two fake plugins, a cache, and a runtime that uses both."""

from pathlib import Path

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, Limits, NetworkConfigurationList, Runtime
from cni_tool import CachedRuntime, FileCache
from tests.plugins import Command, FakePlugins

__all__ = ["ATTACHMENT", "BANANA", "BLUE", "BOOT", "FIRST", "KEY", "LIMITS", "RESULT", "Scene", "network"]

BOOT = "this-boot"
LIMITS = Limits(add_s=20.0, delete_s=20.0, version_s=20.0, grace_s=0.3, executions=4)
RESULT: JsonObject = {"cniVersion": "1.1.0", "ips": [{"address": "10.1.2.3/24"}]}
BANANA: JsonObject = {"error": {"code": 999, "msg": "plugin error: banana"}}
ATTACHMENT = Attachment(
    container_id="c1", ifname="eth0", netns="/run/netns/c1", args=(("K", "V"),), capability_args={"mac": "02::"}
)
KEY = ATTACHMENT.key


def network(*plugins: JsonValue, **keys: JsonValue) -> NetworkConfigurationList:
    """Make a network configuration list."""
    document: JsonObject = {"name": "blue", "cniVersion": "1.1.0", "plugins": list(plugins), **keys}
    return NetworkConfigurationList.from_document(document)


FIRST: JsonObject = {"type": "first", "capabilities": {"mac": True}}
BLUE = network(FIRST, {"type": "second"})


class Scene:
    """Two fake plugins, a cache, and a runtime that uses both."""

    def __init__(self, directory: Path) -> None:
        self.plugins = FakePlugins(directory / "bin")
        self.plugins.install("first", ADD={"result": RESULT})
        self.plugins.install("second", ADD={"passthrough": True})
        self.cache = FileCache(directory / "cache")
        self.stateless = Runtime([self.plugins.directory], LIMITS)
        self.runtime = CachedRuntime(self.stateless, self.cache, boot_id=BOOT)

    @property
    def commands(self) -> tuple[Command, ...]:
        """Return the executions of the plugins, without those for VERSION."""
        return tuple(command for command in self.plugins.commands if command.verb != "VERSION")

    @property
    def calls(self) -> list[str]:
        """Return the same executions as plugin and verb."""
        return [f"{command.plugin} {command.verb}" for command in self.commands]
