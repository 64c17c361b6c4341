# SPDX-License-Identifier: Apache-2.0
"""Checks a network before containers use it and reports every problem that can be found.

The plugins are searched and asked for their versions, as by libcni's `ValidateNetworkList`, and so are their IPAM
plugins. What a meta plugin (flannel, multus) executes is not searched. A problem makes ADD fail for certain; what may
be correct is a warning: a list that libcni runs must run. Keys in another case are the exception: plugins written in Go
read them, and this runtime does not (`known_plugins.py`).
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from cni_invoker.documents.jsontypes import JsonObject, get_object
from cni_invoker.documents.known_plugins import KNOWN_PLUGINS, find_key_doubts, find_key_problems
from cni_invoker.documents.lists import NetworkConfigurationList, PluginConfiguration
from cni_invoker.documents.versions import SUPPORTED_VERSIONS
from cni_invoker.errors import CniError, PluginNotFound, PluginNotStarted
from cni_invoker.runtime import Runtime

_REFERENCE_PLUGINS: Final = KNOWN_PLUGINS | {"loopback"}
"""The plugins of containernetworking/plugins, which distributions ship as one package."""

_MAKES_LINK: Final = frozenset({"bridge", "dummy", "host-device", "ipvlan", "macvlan", "ptp", "tap", "vlan"})
"""Plugins that are known to make the container's link, or to move one in; all others may complete what these make."""

_EXECUTES_IPAM: Final = _MAKES_LINK | {"win-bridge", "win-overlay"}
"""Plugins that are known to execute what `ipam.type` names; other plugins may interpret the name differently."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFinding:
    """The findings about one plugin that a network needs.

    Attributes:
        type: Name of its executable.
        user: The plugin of the list that names it as its IPAM plugin; empty for one of the list itself.
        path: Its executable; None if it was not found, or runs in this process.
        supported: The CNI versions that it reports to support, empty if it could not be asked.
        capabilities: Those that the list declares for it, sorted.
        warnings: What could not be verified.
    """

    type: str
    user: str = ""
    path: Path | None = None
    in_process: bool = False
    supported: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """Its name, e.g. `bridge` or `host-local (ipam)`."""
        return f"{self.type} (ipam)" if self.user else self.type

    @property
    def is_executed(self) -> bool:
        """Whether the runtime, or the plugin that names it, is known to execute it."""
        return not self.user or self.user in _EXECUTES_IPAM


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """The report about a network.

    Attributes:
        cni_version: The negotiated version, None if there is none.
        plugins: One finding per plugin, in list order, each followed by its IPAM plugin.
        problems: What is wrong with the list as a whole.
    """

    network: str
    source: Path | None
    cni_version: str | None
    plugins: tuple[PluginFinding, ...]
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether there are no problems; there may be warnings."""
        return not self.all_problems

    @property
    def all_problems(self) -> tuple[str, ...]:
        """The problems of the list and of each plugin, the latter with the plugin's name."""
        of_plugins = (f"{finding.label}: {problem}" for finding in self.plugins for problem in finding.problems)
        return (*self.problems, *of_plugins)

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The warnings about plugins, each with the plugin's name."""
        return tuple(f"{finding.label}: {warning}" for finding in self.plugins for warning in finding.warnings)

    def render_text(self) -> str:
        """Return the report as text for people: a line for each plugin, problem and warning."""
        source = "" if self.source is None else f" ({self.source})"
        lines = [f"{self.network}{source}: " + (f"CNI {self.cni_version}" if self.cni_version else "not usable")]
        for finding in self.plugins:
            name = f"  {finding.label}" if finding.user else finding.label
            facts = [str(finding.path)] if finding.path else ["in process"] if finding.in_process else []
            if finding.supported:
                facts.append(f"CNI {', '.join(finding.supported)}")
            if finding.capabilities:
                facts.append(f"capabilities {', '.join(finding.capabilities)}")
            marked = [("PROBLEM", problem) for problem in finding.problems]
            marked += [("WARNING", warning) for warning in finding.warnings]
            lines.extend(f"  {mark:<8} {name:<20} {text}" for mark, text in marked or [("ok", "; ".join(facts))])
        lines.extend(f"  PROBLEM  {problem}" for problem in self.problems)
        return "\n".join(lines)


async def run_preflight(runtime: Runtime, network: NetworkConfigurationList) -> Preflight:
    """Find every plugin that `network` needs and ask each for its versions; no problem is raised as an exception."""
    needed = [finding for plugin in network.plugins for finding in _needed(plugin)]
    plugins = tuple(await asyncio.gather(*(_look(runtime, finding, network.cni_versions) for finding in needed)))
    problems = tuple(_find_second_link(network))
    cni_version = None
    if not problems and not any(finding.problems for finding in plugins):
        try:
            cni_version = (await runtime.negotiate(network)).cni_version
        except CniError as exc:
            problems = (str(exc),)
    return Preflight(
        network=network.name, source=network.source, cni_version=cni_version, plugins=plugins, problems=problems
    )


def _find_second_link(network: NetworkConfigurationList) -> Iterator[str]:
    """Yield a problem if two plugins make the container's link: the second one finds its name taken.

    A device of `host-device` that is known by its PCI address may have a driver in userspace, and be no link.
    """
    makers = [
        plugin.type
        for plugin in network.plugins
        if plugin.type in _MAKES_LINK and not (plugin.type == "host-device" and _has_pci_address(plugin.document))
    ]
    if len(makers) > 1:
        second = makers[1]
        yield (
            f"plugins {' and '.join(makers)} each make the container's link, and a list makes one: the ADD of {second} "
            f"fails, because the name is taken; put {second} into a list of its own, and connect the container to both"
        )


def _has_pci_address(document: JsonObject) -> bool:
    capabilities = document.get("capabilities")
    return "pciBusID" in document or (isinstance(capabilities, Mapping) and bool(capabilities.get("deviceID")))


def _needed(plugin: PluginConfiguration) -> Iterator[PluginFinding]:
    """Yield an initial finding for a plugin of the list, and one for its IPAM plugin (CNI SPEC section 4)."""
    document = plugin.document
    reserved = ", ".join(plugin.reserved_keys)
    yield PluginFinding(
        type=plugin.type,
        capabilities=tuple(sorted(plugin.capabilities)),
        problems=tuple(find_key_problems(document, "")),
        warnings=(
            *([f"only a runtime may set {reserved}; that is not passed on"] if reserved else ()),
            *find_key_doubts(document),
        ),
    )
    if plugin.ipam_type is not None:
        finding = PluginFinding(type=plugin.ipam_type, user=plugin.type)
        ipam = get_object(document, "ipam")
        if finding.is_executed or plugin.type == plugin.ipam_type:  # its own section, as alone
            problems, doubts = find_key_problems(ipam, plugin.type), find_key_doubts(ipam)
            finding = replace(finding, problems=tuple(problems), warnings=tuple(doubts))
        yield finding


async def _look(runtime: Runtime, finding: PluginFinding, offered: Sequence[str]) -> PluginFinding:
    is_own = finding.user in {"", finding.type}
    try:
        path = runtime.find_plugin(finding.type) if is_own else runtime.find_executable(finding.type)
    except PluginNotFound as exc:
        return _unusable(finding, f"{exc.where}{_hint(exc)}")
    except CniError as exc:
        return _unusable(finding, str(exc))
    finding = replace(finding, path=path, in_process=path is None)
    try:
        supported = (await runtime.version(finding.type)).supported
    except PluginNotStarted as exc:
        return _unusable(finding, f"cannot execute {exc.path}: {exc.reason}")
    except CniError as exc:
        # Simple plugins do not have the verb.
        guess = "it is taken to speak what the list offers" if len(offered) > 1 else "ADD will show"
        return _warn(finding, f"does not say which CNI versions it speaks ({exc}); {guess}")
    return _compare(replace(finding, supported=supported), offered)


def _compare(finding: PluginFinding, offered: Sequence[str]) -> PluginFinding:
    if set(offered) & set(finding.supported):
        return finding
    versions = ", ".join(f'"{version}"' for version in offered)
    # Same wording as libcni up to the semicolon.
    supported = ", ".join(finding.supported)
    text = f"plugin {finding.type} does not support config version {versions}; it supports {supported}"
    if len(offered) > 1 or offered[0] not in SUPPORTED_VERSIONS:
        return replace(finding, problems=(text,))
    return _warn(finding, f"{text}, as it says itself. The list offers no other, so ADD will show")


def _warn(finding: PluginFinding, warning: str) -> PluginFinding:
    return replace(finding, warnings=(*finding.warnings, warning))


def _unusable(finding: PluginFinding, reason: str) -> PluginFinding:
    """Return the finding about a plugin that cannot be executed: a problem if another one is known to need it."""
    if finding.is_executed:
        return replace(finding, problems=(reason,))
    return _warn(finding, f"{reason} (right if {finding.user} does not execute it; otherwise ADD will fail)")


def _hint(missing: PluginNotFound) -> str:
    if missing.not_executable:
        return "; make it executable (chmod +x), or see that its file system is not mounted noexec"
    is_reference = missing.plugin in _REFERENCE_PLUGINS
    return "; it is one of the CNI project's own (Debian: containernetworking-plugins)" if is_reference else ""
