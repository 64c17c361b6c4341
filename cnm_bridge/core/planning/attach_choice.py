# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Chooses the attach mode of an endpoint; pure.

| `cni.attach` | mode |
| --- | --- |
| `move` | *move* |
| `hybrid` | *hybrid*; refused if the list or the engine cannot do it |
| `direct` | *direct*; refused if the engine cannot do it |
| `auto` | *hybrid* if it does all that *move* does for the list; *direct* for what *move* refuses; else *move* |

The sandbox is known at Join only. So an endpoint of mode *hybrid* that cannot be attached in its sandbox is moved there
after all (`driver/attach/in_sandbox/attacher.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from cni_bridge_state import AttachMode
from cni_invoker import NetworkConfigurationList
from cni_invoker.advanced import PluginConfiguration
from cnm_bridge.core.engine_facts import SANDBOX_AT_JOIN, EngineRelease
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.planning.link.expected_link import DELEGATES
from cnm_bridge.core.planning.options.docker_options import IFNAME
from cnm_bridge.core.planning.plugin_suitability import find_unsuitable
from cnm_bridge.core.settings import AttachOption

__all__ = ["STATIC", "AttachChoice", "AttachRequest", "can_choose_mac", "choose_mode", "find_sandbox_mode"]

STATIC: Final = "static"
"""The IPAM plugin that gives reserved addresses to the first plugin of a list."""

_INDEPENDENT: Final = frozenset({"host-local", "static", "whereabouts"})
"""IPAM plugins that need no link and no namespace (read in plugins 1.1.1 and 1.9.1, whereabouts 0.8)."""

_KEEP_RESERVATION: Final = frozenset({"bandwidth", "firewall", "portmap", "sbr", "tuning"})
"""Chained plugins that return addresses, gateways and name servers as they are (read in plugins 1.1.1 and 1.9.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """What is requested for an endpoint, and where.

    Attributes:
        option: The requested mode.
        is_default: Whether neither the network nor the endpoint has the option `cni.attach`.
    """

    option: AttachOption
    is_default: bool = False

    @property
    def may_reserve(self) -> bool:
        """Whether it can lead to mode *hybrid*."""
        return self.option in {AttachOption.AUTO, AttachOption.HYBRID}

    def __str__(self) -> str:
        return f"the daemon's --attach={self.option}" if self.is_default else f"cni.attach={self.option}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachChoice:
    """A chosen mode.

    Attributes:
        mode: The mode.
        reason: Why, in words that follow "because".
    """

    mode: AttachMode
    reason: str


def choose_mode(
    request: AttachRequest,
    network: NetworkConfigurationList,
    release: EngineRelease | None,
    *,
    static_versions: Collection[str] | None,
    has_ifname: bool = False,
) -> AttachChoice:
    """Return the mode of an endpoint.

    Args:
        request: What is requested.
        network: The negotiated list.
        release: The engine's release, None if it is not known. If mode *hybrid* is demanded then, the sandbox is looked
            for at Join.
        static_versions: The CNI versions that the plugin `static` supports, None if there is no such plugin, or if the
            request does not need it (`AttachRequest.may_reserve`).
        has_ifname: Whether the link's whole name is given.

    Raises:
        BadOption: The name is given and the mode is *move*.
        Refused: The list or the engine cannot do what is requested, or no mode is possible for the list; the text
            names the plugin, the reason, and the mode that is possible.
    """
    choice = _choose_by_request(request, network, release, static_versions=static_versions, has_ifname=has_ifname)
    if has_ifname and choice.mode is AttachMode.MOVE:
        raise BadOption(
            IFNAME,
            "Docker lets no driver but its own choose the whole name of a link that it moves into the container, as "
            f"mode move does ({choice.reason}); give cni.ifname-prefix, to which Docker appends a number",
        )
    return choice


def _choose_by_request(
    request: AttachRequest,
    network: NetworkConfigurationList,
    release: EngineRelease | None,
    *,
    static_versions: Collection[str] | None,
    has_ifname: bool,
) -> AttachChoice:
    obstacle = _find_engine_obstacle(release) or _find_obstacle(network, static_versions)
    unsuitable = find_unsuitable(network)
    match request.option:
        case AttachOption.HYBRID:
            if obstacle is not None:
                raise Refused(
                    f"{request} is not possible for CNI configuration {network.name}: {obstacle}; "
                    f"{'direct' if unsuitable else 'move'} is possible"
                )
            return AttachChoice(mode=AttachMode.HYBRID, reason=str(request))
        case AttachOption.DIRECT:
            old = _find_engine_obstacle(release)
            if old is not None:
                raise Refused(f"{request} is not possible: {old}; move is possible")
            return AttachChoice(mode=AttachMode.DIRECT, reason=str(request))
        case AttachOption.MOVE:
            if unsuitable is not None:
                raise Refused(f"CNI configuration {network.name} cannot be used: {unsuitable}")
            return AttachChoice(mode=AttachMode.MOVE, reason=str(request))
    # move would refuse the name, so hybrid loses nothing
    lost = None if has_ifname else _find_loss(network, release)
    return _choose(network, release, obstacle, unsuitable, lost)


def find_sandbox_mode(
    network: NetworkConfigurationList, release: EngineRelease | None, static_versions: Collection[str] | None
) -> AttachMode | None:
    """Return the mode in which the plugins of a list run in the sandbox; None if the engine makes it after Join.

    Args:
        network: As in `choose_mode`, like the others.
        release: As there.
        static_versions: As there; needed for each request.
    """
    if _find_engine_obstacle(release) is not None:
        return None
    return AttachMode.HYBRID if _find_obstacle(network, static_versions) is None else AttachMode.DIRECT


def can_choose_mac(network: NetworkConfigurationList) -> bool:
    """Return whether the link that a list makes may have a MAC that is chosen before it runs."""
    delegate = DELEGATES.get(network.plugins[0].type)
    return delegate is not None and delegate.has_own_mac


def _choose(
    network: NetworkConfigurationList,
    release: EngineRelease | None,
    obstacle: str | None,
    unsuitable: str | None,
    lost: str | None,
) -> AttachChoice:
    if unsuitable is not None:
        if release is None or not release.makes_sandbox_first:
            raise Refused(f"CNI configuration {network.name} cannot be used: {unsuitable}")
        return AttachChoice(mode=AttachMode.DIRECT, reason=f"of {unsuitable}")
    reason = obstacle or lost
    if reason is not None:
        return AttachChoice(mode=AttachMode.MOVE, reason=reason)
    return AttachChoice(mode=AttachMode.HYBRID, reason="all plugins of the list can run in the sandbox")


def _find_loss(network: NetworkConfigurationList, release: EngineRelease | None) -> str | None:
    """Return what mode *move* can do and *hybrid* may refuse, because Docker learns addresses and MAC in advance."""
    if release is None:
        return "the release of the Docker Engine was not known"
    main, *others = network.plugins
    delegate = DELEGATES.get(main.type)
    if delegate is not None and delegate.lost is not None:
        return f"Docker would not learn {delegate.lost}"
    return next((text for plugin in others if (text := _describe_change(plugin)) is not None), None)


def _describe_change(plugin: PluginConfiguration) -> str | None:
    """Return what a chained plugin may change of what Docker has learnt, None if nothing."""
    if plugin.type not in _KEEP_RESERVATION:
        return (
            f"plugin {plugin.type} is not known to leave addresses and MAC as they are; cni.attach=hybrid is possible"
        )
    if plugin.type == "tuning" and "mac" in plugin.document:
        return "plugin tuning sets a MAC"
    return None


def _find_engine_obstacle(release: EngineRelease | None) -> str | None:
    """Return why an engine cannot attach in the sandbox, None if it can or is unknown."""
    if release is None or release.makes_sandbox_first:
        return None
    return f"Docker Engine {release} makes the sandbox after Join (from {SANDBOX_AT_JOIN} on it does so before)"


def _find_obstacle(network: NetworkConfigurationList, static_versions: Collection[str] | None) -> str | None:
    """Return why the addresses of a list cannot be reserved before its first plugin runs, None if they can."""
    main, *others = network.plugins
    second = next((plugin for plugin in others if plugin.ipam_type is not None), None)
    obstacles = (
        (main.type not in DELEGATES, f"plugin {main.type} is not known to leave its addresses to an IPAM plugin"),
        (main.ipam_type is None, f"plugin {main.type} has no IPAM plugin"),
        (main.ipam_type not in _INDEPENDENT, f"IPAM plugin {main.ipam_type} is not known to work without a link"),
        (second is not None, f"plugin {second.type if second else ''} has an IPAM plugin as well"),
        (static_versions is None, f"plugin {STATIC} is not installed"),
        (
            network.cni_version not in (static_versions or ()),
            f"plugin {STATIC} does not support CNI version {network.cni_version}",
        ),
    )
    return next((text for applies, text in obstacles if applies), None)
