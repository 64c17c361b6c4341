# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Everything about a network that can be known to be wrong before a container comes, in one report.

Nothing is changed on the host: plugins are looked at, and asked for their versions. libcni's `ValidateNetworkList` asks
the same of the plugins of the list alone; here those that they delegate to are looked at too.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path
from typing import Final

from cni_invoker.config import NetworkConfigurationList
from cni_invoker.errors import CniError
from cni_invoker.plugin_errors import PluginNotFound, PluginNotStarted
from cni_invoker.runtime import Runtime
from spec import JsonObject, JsonValue

__all__ = ["PluginFinding", "Preflight", "Role", "run_preflight"]

_REFERENCE_PLUGINS: Final = frozenset(
    {
        *("bandwidth", "bridge", "dhcp", "dummy", "firewall", "host-device", "host-local", "ipvlan", "loopback"),
        *("macvlan", "portmap", "ptp", "sbr", "static", "tap", "tuning", "vlan", "vrf"),
    }
)
"""The plugins of containernetworking/plugins, which distributions have in one package."""


class Role(StrEnum):
    """What a plugin is to the list."""

    PLUGIN = "plugin"
    """The runtime executes it."""
    IPAM = "ipam"
    """Another plugin executes it for addresses."""
    DELEGATE = "delegate"
    """Another plugin executes it for the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFinding:
    """What is known of one plugin that a network needs.

    Attributes:
        type: Name of its executable.
        role: What it is to the list.
        path: Its executable, None if there is none.
        supported: The CNI versions it says it supports, empty if it could not be asked.
        capabilities: What the list declares it to understand in `runtimeConfig`, sorted.
        problems: What is wrong with it, empty if nothing is.
    """

    type: str
    role: Role
    path: Path | None = None
    supported: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Its name, with its role if it is not one of the list's own plugins, e.g. `host-local (ipam)`."""
        return self.type if self.role is Role.PLUGIN else f"{self.type} ({self.role.value})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What is known of a network.

    Attributes:
        network: Its name.
        source: The file of its list, None if it comes from elsewhere.
        cni_version: The version that its plugins would be spoken to in, None if none is possible.
        plugins: One finding for each plugin, in the order of the list, each followed by those it delegates to.
        problems: What is wrong with the list as a whole.
    """

    network: str
    source: Path | None
    cni_version: str | None
    plugins: tuple[PluginFinding, ...]
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether nothing is wrong."""
        return not self.all_problems

    @property
    def all_problems(self) -> tuple[str, ...]:
        """What is wrong with the list and with each plugin, the latter with its name."""
        return (*self.problems, *(f"{found.label}: {problem}" for found in self.plugins for problem in found.problems))

    @property
    def capabilities(self) -> tuple[str, ...]:
        """What any plugin of the list understands in `runtimeConfig`, sorted."""
        return tuple(sorted({capability for found in self.plugins for capability in found.capabilities}))

    def render_json(self) -> JsonObject:
        """Return the report as JSON; its keys are those of CNI where CNI has them."""
        return {
            "name": self.network,
            "source": None if self.source is None else str(self.source),
            "cniVersion": self.cni_version,
            "capabilities": list(self.capabilities),
            "plugins": [
                {
                    "type": found.type,
                    "role": found.role.value,
                    "path": None if found.path is None else str(found.path),
                    "supportedVersions": list(found.supported),
                    "capabilities": list(found.capabilities),
                    "problems": list(found.problems),
                }
                for found in self.plugins
            ],
            "problems": list(self.problems),
        }

    def render_text(self) -> str:
        """Return the report for a reader.

        ```
        blue (/etc/cni/net.d/10-blue.conflist): not usable
          ok       bridge               /opt/cni/bin/bridge; CNI 0.3.1, 0.4.0, 1.0.0
          ok         host-local (ipam)  /opt/cni/bin/host-local; CNI 0.3.1, 0.4.0, 1.0.0
          PROBLEM  firewal              not found in /opt/cni/bin; did you mean 'firewall'?
        ```
        """
        source = "" if self.source is None else f" ({self.source})"
        lines = [f"{self.network}{source}: " + (f"CNI {self.cni_version}" if self.cni_version else "not usable")]
        for found in self.plugins:
            name = found.label if found.role is Role.PLUGIN else f"  {found.label}"
            facts = [str(found.path)] if found.path else []
            facts.append(f"CNI {', '.join(found.supported)}" if found.supported else "does not tell its CNI versions")
            if found.capabilities:
                facts.append(f"capabilities {', '.join(found.capabilities)}")
            said = [("PROBLEM", problem) for problem in found.problems] or [("ok", "; ".join(facts))]
            lines.extend(f"  {mark:<8} {name:<20} {text}" for mark, text in said)
        lines.extend(f"  PROBLEM  {problem}" for problem in self.problems)
        return "\n".join(lines)


async def run_preflight(runtime: Runtime, network: NetworkConfigurationList) -> Preflight:
    """Look at every plugin that `network` needs, and ask each for its versions.

    What is wrong is in the report, never an exception.

    Args:
        runtime: Would run the plugins.
        network: The list.
    """
    needed = [found for plugin in network.plugins for found in _needed(plugin.document)]
    async with asyncio.TaskGroup() as tasks:
        looking = [tasks.create_task(_look(runtime, found, network.cni_versions)) for found in needed]
    plugins = tuple(task.result() for task in looking)
    problems: tuple[str, ...] = ()
    cni_version = None
    if not any(found.problems for found in plugins):
        try:
            cni_version = (await runtime.negotiate(network)).cni_version
        except CniError as exc:
            problems = (str(exc),)
    return Preflight(
        network=network.name, source=network.source, cni_version=cni_version, plugins=plugins, problems=problems
    )


def _needed(document: JsonObject) -> Iterator[PluginFinding]:
    """Give the plugin of a configuration and those it delegates to, as far as nothing is known of them yet.

    `ipam` is the specification's; `delegate` (flannel) and `delegates` (multus) are what meta plugins have agreed on.
    """
    waiting: list[tuple[JsonValue, Role]] = [(document, Role.PLUGIN)]
    while waiting:
        found, role = waiting.pop()
        if not isinstance(found, Mapping):
            continue
        plugin_type = found.get("type")
        if isinstance(plugin_type, str) and plugin_type:
            declared = found.get("capabilities")
            understood = declared.items() if isinstance(declared, Mapping) else ()
            capabilities = tuple(sorted(key for key, wanted in understood if wanted))
            yield PluginFinding(type=plugin_type, role=role, capabilities=capabilities)
        inner = [(found.get("ipam"), Role.IPAM), (found.get("delegate"), Role.DELEGATE)]
        for several in (found.get("delegates"), found.get("plugins")):
            inner += [(item, Role.DELEGATE) for item in (several if isinstance(several, list) else ())]
        waiting += reversed(inner)


async def _look(runtime: Runtime, found: PluginFinding, offered: Sequence[str]) -> PluginFinding:
    """Complete what is known of a plugin."""
    try:
        path = runtime.find_plugin(found.type)
    except PluginNotFound as exc:
        return replace(found, problems=(f"{exc.where}{_hint(exc)}",))
    except CniError as exc:
        return replace(found, problems=(str(exc),))
    try:
        supported = (await runtime.version(found.type)).supported
    except PluginNotStarted as exc:
        return replace(found, path=path, problems=(f"cannot execute {exc.path}: {exc.reason}",))
    except CniError as exc:
        # Simple plugins do not know the verb; where there is nothing to choose, ADD will show, as when negotiating.
        return replace(found, path=path, problems=(str(exc),) if len(offered) > 1 else ())
    problems: tuple[str, ...] = ()
    if not set(offered) & set(supported):
        versions = ", ".join(f'"{version}"' for version in offered)
        # The words of libcni up to the semicolon.
        problems = (
            f"plugin {found.type} does not support config version {versions}; it supports {', '.join(supported)}",
        )
    return replace(found, path=path, supported=supported, problems=problems)


def _hint(missing: PluginNotFound) -> str:
    """Return what may help whoever misses a plugin."""
    if missing.not_executable:
        return "; make it executable (chmod +x), or see that its file system is not mounted noexec"
    if missing.plugin in _REFERENCE_PLUGINS:
        return "; it is one of the CNI project's own (Debian: containernetworking-plugins)"
    known = set(_REFERENCE_PLUGINS)
    for directory in missing.directories:
        with suppress(OSError):  # who may execute what is there need not be allowed to list it
            known.update(path.name for path in directory.iterdir())
    near = get_close_matches(missing.plugin, known, n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""
