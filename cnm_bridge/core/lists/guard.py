# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Guarded networks: their options `cni.egress.…`, and their list, which ends with the plugin `egress`; pure.

Which network is guarded, and how, depends on dockerd's resolver (127.0.0.11), which every container can ask:

* On an internal network it answers for containers only. So from Engine 28.1 on a guarded network is internal for
  Docker, keeps its default route all the same, and resolv.conf names the responder of `egress` as a further server.
* Older engines do not call the driver in time to edit that file. There, the network is not internal, and the resolver
  must be given the responder as its server (`--dns`), which it then asks from the container's namespace.

The syntax of an entry is the business of the plugin `egress`, which is asked when the network is made.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NoReturn, TypeVar

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts.engine import DNS_BEFORE_START, EngineVersion
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.lists.changes import with_plugins
from cnm_bridge.core.lists.plugins import bridges

ALLOW: Final = "cni.egress.allow"
_AUDIT: Final = "cni.egress.audit"
OTHER_NETWORKS: Final = "cni.egress.other-networks"
_NET_ADMIN: Final = "cni.egress.net-admin"
EGRESS_OF_NETWORKS: Final = (_AUDIT, OTHER_NETWORKS, _NET_ADMIN)
"""Those that a container cannot give."""
EGRESS_OPTIONS: Final = frozenset({ALLOW, *EGRESS_OF_NETWORKS})
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}
_SEPARATORS: Final = re.compile(r"[,\s]+")
_T = TypeVar("_T")


class OtherNetworks(StrEnum):
    """What happens if a container is also on a network that is neither guarded nor internal."""

    REFUSE = "refuse"
    """The container does not start; a network that is connected later is reported."""
    ALLOW = "allow"
    DISCONNECT = "disconnect"
    """As REFUSE, and the container is taken off a network that is connected later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressOptions:
    """What a network's options say about what its containers reach.

    Attributes:
        audit: Whether everything passes, and what the list does not have is logged.
        allows_net_admin: Whether a container may have the capabilities with which it can change the host's network.
    """

    allow: tuple[str, ...] = ()
    audit: bool = False
    other_networks: OtherNetworks = OtherNetworks.REFUSE
    allows_net_admin: bool = False

    @property
    def guards(self) -> bool:
        """Whether the network is guarded because of its options, whatever its list has."""
        return bool(self.allow) or self.audit


def parse_egress(options: Mapping[str, str]) -> EgressOptions:
    """Parse the options of a network."""
    return EgressOptions(
        allow=parse_entries(options),
        audit=_choose(_AUDIT, options.get(_AUDIT, "false"), _BOOLEANS),
        other_networks=_choose(
            OTHER_NETWORKS, options.get(OTHER_NETWORKS, "refuse"), {one.value: one for one in OtherNetworks}
        ),
        allows_net_admin=_choose(_NET_ADMIN, options.get(_NET_ADMIN, "refuse"), {"refuse": False, "allow": True}),
    )


def parse_entries(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the entries of an allow-list, such as `api.example.com, 10.0.5.7:5432`; none without the option."""
    if ALLOW not in options:
        return ()
    entries = tuple(filter(None, _SEPARATORS.split(options[ALLOW])))
    if not entries:
        raise BadOption(ALLOW, "is empty; give names, addresses or networks, such as api.example.com, or leave it out")
    return entries


def _choose(option: str, text: str, known: Mapping[str, _T]) -> _T:
    if text not in known:
        raise BadOption(option, f"{text!r} is neither {' nor '.join(known)}")
    return known[text]


_EGRESS: Final = "egress"
RESPONDER: Final = "169.254.53.53"
RESPONDER_IPV6: Final = "fd53:5353::53"
"""Where `cni-egress` answers queries for names."""
_PAST_THE_HOST: Final = frozenset({"dummy", "host-device", "ipvlan", "macvlan", "ovs", "sriov", "tap", "vlan"})
"""Plugins whose links send past the rules of the host."""
_VLAN_KEYS: Final = ("vlan", "vlanTrunk")
_WITH_STATUS: Final = "1.1.0"
"""The first CNI version with STATUS. The plugin is asked in it whichever version the list has."""
_GIVE_DNS: Final = f"give the container --dns {RESPONDER} (compose: dns: {RESPONDER})"


def is_guarded(network: NetworkConfigurationList) -> bool:
    """Return whether a list has the plugin `egress`."""
    return any(is_guard(plugin.document) for plugin in network.plugins)


def is_guard(plugin: JsonObject) -> bool:
    """Return whether a plugin of a list is `egress`, by its document."""
    return plugin.get("type") == _EGRESS


def without_gateway(network: NetworkConfigurationList, *, internal: bool) -> bool:
    """Return whether containers get no gateway and no default route: a guarded network keeps them, also if internal."""
    return internal and not is_guarded(network)


def guard_plugin(allow: Sequence[str], *, audit: bool) -> JsonObject:
    """Return the section of the plugin `egress` in a list."""
    return {
        "type": _EGRESS,
        "allow": list(allow),
        **({"audit": True} if audit else {}),
        "capabilities": {_EGRESS: True},
    }


def with_guard(network: NetworkConfigurationList, allow: Sequence[str], *, audit: bool) -> NetworkConfigurationList:
    """Return a list that guards, with the plugin `egress` if the network's options ask for it; others as they are.

    Raises:
        BadOption: The options ask for it, and the list has it already.
        Refused: What the list makes cannot be guarded.
    """
    if allow or audit:
        if is_guarded(network):
            raise BadOption(
                "cni.egress.allow" if allow else "cni.egress.audit",
                f"CNI configuration {network.name} has the plugin egress already: write it there",
            )
        documents = (plugin.document for plugin in network.plugins)
        network = with_plugins(network, [*documents, guard_plugin(allow, audit=audit)])
    if is_guarded(network):
        _refuse_unguardable(network)
    return network


def lone_guard(name: str, allow: Sequence[str], *, audit: bool) -> NetworkConfigurationList:
    """Return a list that has only the plugin for a network's options; for `status_list`."""
    plugins: list[JsonValue] = [guard_plugin(allow, audit=audit)]
    return NetworkConfigurationList.from_document({"cniVersion": _WITH_STATUS, "name": name, "plugins": plugins})


def status_list(network: NetworkConfigurationList) -> NetworkConfigurationList:
    """Return a guarded list with which only the plugin `egress` runs, in a version that has STATUS."""
    return network.with_plugins(network.plugins[-1:]).with_version(_WITH_STATUS)


def refuse_other_engine(*, internal: bool, version: EngineVersion | None) -> None:
    """Refuse a guarded network that is not made as its engine needs it; nothing if the version is not known."""
    if version is None:
        return
    if version.calls_before_start and not internal:
        raise Refused(
            f"a guarded network has to be internal from Docker Engine {DNS_BEFORE_START} on: otherwise dockerd's own "
            "resolver looks up every name for its containers. Make it with --internal (compose: internal: true); its "
            "containers have a default route all the same, and reach what is allowed"
        )
    if internal and not version.calls_before_start:
        raise Refused(
            f"with Docker Engine {version} a guarded network cannot be internal: the driver could not bring its name "
            f"server into containers in time, which it can from {DNS_BEFORE_START} on. Make it without --internal, and "
            f"{_GIVE_DNS}"
        )


def find_shared_bridge(network: NetworkConfigurationList, other: NetworkConfigurationList) -> str | None:
    """Return a bridge that two lists have if only one of them is guarded; None if there is none."""
    if is_guarded(network) is is_guarded(other):
        return None
    return next((name for name in bridges(network) if name in bridges(other)), None)


def refuse_shared_bridge(bridge: str, other: str, *, is_other_guarded: bool) -> NoReturn:
    """Refuse a network on the bridge of another Docker network, of which only one is guarded."""
    who, which, allow = (
        ("containers of this network", "is guarded", "")
        if is_other_guarded
        else (f"containers of {other}", "is not guarded", " --allow ENTRY")
    )
    raise Refused(
        f"the bridge {bridge} is also that of the Docker network {other}, which {which}. A bridge is guarded as a "
        f"whole: {who} would reach nothing beyond it. Make the network with a list that has a bridge of its own: "
        f"cni-bridge network create NAME --subnet SUBNET{allow}"
    )


def refuse_without_responder(*, internal: bool, name_servers: Collection[str], version: EngineVersion | None) -> None:
    """Refuse a container on a guarded network that is not internal, if dockerd would not ask the responder."""
    if internal or RESPONDER in name_servers:
        return
    remedy = _GIVE_DNS
    if version is not None and version.calls_before_start:
        remedy = f"make the network again with --internal (compose: internal: true), or {_GIVE_DNS}"
    raise Refused(
        "the network is guarded, and dockerd's own resolver would look up every name for the container: " + remedy
    )


def _refuse_unguardable(network: NetworkConfigurationList) -> None:
    main, guard = network.plugins[0], network.plugins[-1]
    problem = ""
    if guard.type != _EGRESS or sum(plugin.type == _EGRESS for plugin in network.plugins) > 1:
        problem = "the plugin egress must be the last one, and there can be only one"
    elif main is guard:
        problem = "the plugin egress follows one that makes the link, such as bridge"
    elif main.type in _PAST_THE_HOST:
        problem = (
            f"the plugin egress guards containers behind the plugins bridge and ptp only, and the links of {main.type} "
            "send past the rules of the host"
        )
    elif any(key in main.document for key in _VLAN_KEYS):
        problem = (
            "the plugin egress cannot guard a bridge with VLANs: remove vlan and vlanTrunk from the plugin "
            f"{main.type}, and give each VLAN a bridge of its own"
        )
    if problem:
        raise Refused(f"CNI configuration {network.name} cannot be used: {problem}")
