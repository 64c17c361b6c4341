# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The environment of a case: directories of configurations, plugins and cached attachments, and a runtime."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, render_json
from cni_invoker import (
    Attachment,
    CachedRuntime,
    ConfigurationDirectories,
    FileCache,
    Limits,
    NetworkConfigurationList,
    Runtime,
)
from tests.plugins import Command, FakePlugins

__all__ = ["ATTACHMENT", "LIMITS", "Scene", "network", "three_plugins"]

ATTACHMENT: Final = Attachment(
    container_id="some-container-id",
    ifname="eth0",
    netns="/some/netns/path",
    args=(("FOO", "BAR"),),
    capability_args={"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
)

LIMITS: Final = Limits(add_s=20.0, delete_s=20.0, grace_s=0.3)


def network(*plugins: JsonValue, name: str = "some-list", version: str = "1.1.0") -> NetworkConfigurationList:
    """Make a list."""
    return NetworkConfigurationList.from_document({"name": name, "cniVersion": version, "plugins": list(plugins)})


def three_plugins(version: str = "1.1.0", keys: JsonObject | None = None) -> NetworkConfigurationList:
    """Make the list of three plugins that most cases use, with further `keys`."""
    plugins: list[JsonValue] = [{"type": plugin} for plugin in ("one", "noop", "three")]
    return NetworkConfigurationList.from_document(
        {"name": "some-list", "cniVersion": version, "plugins": plugins, **(keys or {})}
    )


class Scene:
    """The directories and plugins of one case.

    Attributes:
        directory: A directory for everything.
        configurations: The configuration directory; `configure` makes it.
        plugins: The fake plugins.
        cache_dir: The directory of the cache.
        cache: The cache, in libcni's form.
        boot_id: The boot ID that the cached runtime uses.
    """

    boot_id: Final = "5d0e1e1c-8e0b-4f3a-9c1d-2f8c53a8f0aa"

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.configurations = directory / "net.d"
        self.plugins = FakePlugins(directory / "bin")
        self.cache_dir = directory / "cache"
        self.cache = FileCache(self.cache_dir)
        self._forgotten = 0

    def configure(self, files: Mapping[str, JsonValue]) -> ConfigurationDirectories:
        """Write configuration files and return their directory."""
        self.configurations.mkdir(exist_ok=True)
        for name, document in files.items():
            file = self.configurations / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(render_json(document))
        return ConfigurationDirectories([self.configurations])

    def install(self, *plugin_types: str, **behaviours: JsonValue) -> None:
        """Install fake plugins with the same behaviour."""
        for plugin_type in plugin_types:
            self.plugins.install(plugin_type, **behaviours)

    def script(self, plugin_type: str, *lines: str) -> Path:
        """Install a shell script as a plugin."""
        path = self.plugins.directory / plugin_type
        path.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
        path.chmod(0o755)
        return path

    def runtime(self, limits: Limits = LIMITS) -> Runtime:
        """Return a runtime that finds the plugins."""
        return Runtime([self.plugins.directory], limits)

    @staticmethod
    async def wait_until_gone(pid: int) -> None:
        """Wait until a process has ended."""
        async with asyncio.timeout(5):
            while _is_alive(pid):  # noqa: ASYNC110  # there is no event
                await asyncio.sleep(0.005)

    def cached_runtime(self) -> CachedRuntime:
        """Return a runtime with the cache `cache`; two of them do not wait for each other."""
        return CachedRuntime(self.runtime(), self.cache, boot_id=self.boot_id)

    def write_cache(self, data: bytes) -> Path:
        """Write the cache file of `ATTACHMENT` on the network `some-list`; return its path."""
        file = self.cache_dir / "results" / f"some-list-{ATTACHMENT.container_id}-{ATTACHMENT.ifname}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    @property
    def commands(self) -> tuple[Command, ...]:
        """The calls since `forget_calls`, without VERSION, which the runtime executes as needed."""
        return tuple(command for command in self.plugins.commands if command.verb != "VERSION")[self._forgotten :]

    @property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Plugin and verb of each of `commands`."""
        return tuple((command.plugin, command.verb) for command in self.commands)

    @property
    def stdins(self) -> tuple[JsonObject, ...]:
        """The standard input of each of `commands`."""
        return tuple(command.stdin for command in self.commands)

    def forget_calls(self) -> None:
        """Leave the calls so far out of `commands`."""
        self._forgotten += len(self.commands)

    async def wait_for_call(self, plugin: str, verb: str) -> None:
        """Wait until a plugin has been called with a verb."""
        async with asyncio.timeout(10):
            while (plugin, verb) not in self.calls:  # noqa: ASYNC110  # another process writes it
                await asyncio.sleep(0.005)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
