# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Chooses the attach mode of an endpoint; pure.

| `cni.attach` | mode |
| --- | --- |
| `move` | *move*; refused if the list or an option needs the sandbox |
| `sandbox` | *sandbox*; refused if the engine makes the sandbox too late |
| `auto` | *move* if it can do what the list and the options need, else *sandbox* |
| `fast` | *sandbox* if Docker then learns the same addresses and MAC, and for what *move* refuses; else *move* |

Mode *sandbox* has two mechanisms (`AttachMode`): *hybrid*, in which the IPAM plugin runs first, so that Docker knows
the addresses, and *direct* for lists that do not allow that.

Docker knows all of a link only if it moves it, so `auto` prefers *move*
(docs/decisions/move-links-from-a-staging-namespace.md).

The sandbox is known at Join only. So a *hybrid* endpoint that cannot be attached in its sandbox is moved there
after all, if its link can be moved (`driver/attach/sandbox_attacher.py`).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, assert_never

from cni_bridge_state import AttachMode
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cnm_bridge.core.engine_facts.engine import SANDBOX_AT_JOIN, EngineVersion
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.link.expected_link import DELEGATES
from cnm_bridge.core.lists.address_ranges import RANGED
from cnm_bridge.core.lists.plugins import find_unsuitable
from cnm_bridge.core.options.cni_options import Options
from cnm_bridge.core.options.docker_options import IFNAME
from cnm_bridge.core.settings import AttachOption

STATIC: Final = "static"
"""The IPAM plugin that gives reserved addresses to the first plugin of a list."""

_UNKNOWN_VERSION: Final = "the version of the Docker Engine was not known"
_NEWER_ENGINE: Final = f"use Docker Engine {SANDBOX_AT_JOIN} or newer"

_INDEPENDENT: Final = RANGED | {"calico-ipam", "static", "whereabouts"}
"""IPAM plugins that need no link and no namespace (read in plugins 1.1.1 and 1.9.1, whereabouts 0.8, Calico)."""

_KEEP_RESERVATION: Final = frozenset({"bandwidth", "egress", "firewall", "portmap", "sbr", "tuning"})
"""Chained plugins that return addresses, gateways and name servers as they are (read in plugins 1.1.1 and 1.9.1)."""

_HOST_PREFIX: Final = frozenset({"ptp", "sbr"})
"""Plugins that remove the route of an address's prefix: Docker then gives a moved link the prefix of a single host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachRequest:
    """What is requested for an endpoint, and where.

    Attributes:
        network: The negotiated list.
        default: The daemon's mode for endpoints without the option `cni.attach`.
        version: The engine's version, None if it is not known; the sandbox is looked for at Join then.
    """

    network: NetworkConfigurationList
    options: Options
    default: AttachOption
    version: EngineVersion | None
    has_pool: bool = False

    @property
    def option(self) -> AttachOption:
        """The requested mode."""
        return self.options.attach or self.default

    @property
    def has_ifname(self) -> bool:
        """Whether the link's whole name is given."""
        return self.options.ifname is not None

    @property
    def requires_identity(self) -> bool:
        """Whether a container that plugins do not know is refused."""
        return self.options.identity is not None and self.options.identity.is_required

    def __str__(self) -> str:
        return f"the daemon's --attach={self.option}" if self.options.attach is None else f"cni.attach={self.option}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachChoice:
    """A chosen mode."""

    mode: AttachMode
    reason: str


def depends_on_static(request: AttachRequest) -> bool:
    """Return whether the mode depends on the versions of the plugin `static`."""
    match request.option:
        case AttachOption.AUTO:
            return find_unsuitable(request.network) is not None or _find_need(request) is not None
        case AttachOption.FAST | AttachOption.SANDBOX:
            return True
        case AttachOption.MOVE:
            return False
        case _ as never:
            assert_never(never)


def choose_mode(request: AttachRequest, static_versions: Collection[str] | None) -> AttachChoice:
    """Return the mode of an endpoint.

    `static_versions` are the CNI versions that the plugin `static` supports. They are None if there is no such plugin,
    or if the choice does not depend on it (`depends_on_static`).

    Raises:
        BadOption: The link's whole name is given and the mode is *move*.
        Refused: The list or the engine cannot do what is requested, or no mode is possible for the list; the text
            names the plugin or the option, the reason, and the mode that is possible.
    """
    choice = _choose_by_option(request, static_versions)
    if choice.mode.in_sandbox:
        return choice
    if request.has_ifname:
        raise BadOption(
            IFNAME,
            "Docker lets no driver but its own choose the whole name of a link that it moves into the container, as "
            f"mode move does ({choice.reason}); give cni.ifname-prefix, to which Docker appends a number",
        )
    if request.requires_identity:
        is_new = _find_engine_obstacle(request.version) is None
        remedy = f"choose cni.attach={AttachOption.SANDBOX}" if is_new else _NEWER_ENGINE
        raise Refused(
            "cni.identity-required: plugins cannot know the container in mode move, in which they run before Docker "
            f"says which it is; the mode is move because {choice.reason}; {remedy}, or leave out cni.identity-required"
        )
    return choice


def _choose_by_option(request: AttachRequest, static_versions: Collection[str] | None) -> AttachChoice:
    network = request.network
    old = _find_engine_obstacle(request.version)
    obstacle = _find_obstacle(network, static_versions)
    match request.option:
        case AttachOption.AUTO:
            return _choose_auto(request, old, obstacle)
        case AttachOption.FAST:
            return _choose_fast(request, old, obstacle)
        case AttachOption.SANDBOX:
            if old is not None:
                remedy = f"{AttachOption.MOVE} is possible" if _can_move(request) else _NEWER_ENGINE
                raise Refused(f"{request} is not possible: {old}; {remedy}")
            return _in_sandbox(str(request), obstacle)
        case AttachOption.MOVE:
            unsuitable = find_unsuitable(network)
            if unsuitable is not None:
                raise Refused(f"CNI configuration {network.name} cannot be used: {unsuitable}")
            return AttachChoice(mode=AttachMode.MOVE, reason=str(request))
        case _ as never:
            assert_never(never)


def _in_sandbox(reason: str, obstacle: str | None) -> AttachChoice:
    """Return the mechanism of mode *sandbox*; with an obstacle, Docker cannot learn the addresses."""
    if obstacle is None:
        return AttachChoice(mode=AttachMode.HYBRID, reason=reason)
    return AttachChoice(mode=AttachMode.DIRECT, reason=f"{reason}; Docker does not know the addresses: {obstacle}")


def _choose_auto(request: AttachRequest, old: str | None, obstacle: str | None) -> AttachChoice:
    """Return the mode in which Docker knows most of the link."""
    unsuitable = _find_unmovable(request)
    need = _find_need(request) if unsuitable is None else f"of {unsuitable}"
    if need is None:
        return AttachChoice(mode=AttachMode.MOVE, reason="Docker knows all of a link that it moves itself")
    if old is not None:
        return AttachChoice(mode=AttachMode.MOVE, reason=old)
    if obstacle is not None and request.version is None:
        return AttachChoice(mode=AttachMode.MOVE, reason=_UNKNOWN_VERSION)
    if obstacle is not None and _can_move(request):
        return AttachChoice(mode=AttachMode.MOVE, reason=obstacle)
    return _in_sandbox(need, obstacle)


def _can_move(request: AttachRequest) -> bool:
    """Return whether mode *move* gives all that is needed; an identity that is not required may be unknown."""
    if not request.requires_identity:
        request = replace(request, options=replace(request.options, identity=None))
    return find_unsuitable(request.network) is None and _find_need(request) is None


def _find_need(request: AttachRequest) -> str | None:
    """Return which option or address needs plugins that run in the sandbox, in words; None if there is none."""
    if request.has_ifname:
        return f"{IFNAME} needs plugins that run in the sandbox"
    single = next((plugin.type for plugin in request.network.plugins if plugin.type in _HOST_PREFIX), None)
    if request.has_pool and single is not None:
        return f"plugin {single} would give a moved link another prefix than Docker's IPAM"
    return None if request.options.identity is None else "cni.identity needs plugins that run in the sandbox"


def _choose_fast(request: AttachRequest, old: str | None, obstacle: str | None) -> AttachChoice:
    """Return the fastest mode in which Docker learns the same addresses and MAC as in mode *move*."""
    unsuitable = _find_unmovable(request)
    if unsuitable is not None:
        return _in_sandbox(f"of {unsuitable}", obstacle)
    # move would refuse the name, so the sandbox loses nothing
    reason = old or obstacle or (None if request.has_ifname else _find_unknown_to_docker(request))
    if reason is not None:
        return AttachChoice(mode=AttachMode.MOVE, reason=reason)
    return _in_sandbox("all plugins of the list can run in the sandbox", None)


def _find_unmovable(request: AttachRequest) -> str | None:
    """Return which plugin needs the sandbox, and why; refuse an engine that may make the sandbox after Join."""
    version, unsuitable = request.version, find_unsuitable(request.network)
    if unsuitable is not None and (version is None or not version.makes_sandbox_first):
        engine = _find_engine_obstacle(version) or _UNKNOWN_VERSION
        raise Refused(f"CNI configuration {request.network.name} cannot be used: {unsuitable}; {engine}")
    return unsuitable


def _find_unknown_to_docker(request: AttachRequest) -> str | None:
    """Return what *move* can do and *sandbox* may refuse, because Docker learns addresses and MAC in advance."""
    if request.version is None:
        return _UNKNOWN_VERSION
    main, *others = request.network.plugins
    delegate = DELEGATES.get(main.type)
    if delegate is not None and delegate.lost is not None:
        return f"Docker would not learn {delegate.lost}"
    return next((text for plugin in others if (text := _describe_change(plugin)) is not None), None)


def _describe_change(plugin: PluginConfiguration) -> str | None:
    """Return what a chained plugin may change of what Docker has learnt, None if nothing."""
    if plugin.type in _KEEP_RESERVATION:
        return None
    return f"plugin {plugin.type} is not known to leave addresses and MAC as they are; cni.attach=sandbox is possible"


def _find_engine_obstacle(version: EngineVersion | None) -> str | None:
    """Return why an engine cannot attach in the sandbox, None if it can or is unknown."""
    if version is None or version.makes_sandbox_first:
        return None
    return f"Docker Engine {version} makes the sandbox after Join (from {SANDBOX_AT_JOIN} on it does so before)"


def _find_obstacle(network: NetworkConfigurationList, static_versions: Collection[str] | None) -> str | None:
    """Return why Docker cannot learn addresses and MAC before the first plugin of a list runs, None if it can."""
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
