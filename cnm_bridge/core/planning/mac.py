# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The MAC of a link: the one that was requested, the one that a list gives, or one that this driver makes; pure."""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

from cni_bridge_spec import JsonObject, find_str
from cni_invoker import NetworkConfigurationList, PluginConfiguration
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.link.expected_link import DELEGATES
from cnm_bridge.core.lists.changes import cni_args_of
from cnm_bridge.core.lists.dhcp import attachment_with_identifier
from cnm_bridge.core.planning.addressing import Addressing

_BYTES: Final = 6
_MULTICAST: Final = 0x01
_LOCAL: Final = 0x02
"""Bits of the first byte (IEEE 802)."""

_SEPARATORS: Final = {ord(separator): None for separator in ":-."}

_MAC: Final = "mac"
_READ_MAC_ARGUMENT: Final = frozenset({"bridge", "macvlan", "tap", "tuning"})
_MAC_IS_FIXED: Final = frozenset({"calico"})
"""Plugins that accept no MAC, and whose agent keeps a static neighbour entry with theirs (Calico: felix)."""


def endpoint_mac(endpoint_id: str) -> str:
    """Return the MAC that is made of an endpoint's ID.

    It is not made of the address. Updaters make a container again with the MAC that Docker showed of the former one.
    Another container may get the former one's address, and must not get the same MAC (moby #48808).
    """
    return local_mac(sha256(endpoint_id.encode()).digest()[:_BYTES])


def plugins_mac(network: NetworkConfigurationList, args: Mapping[str, str], capability_args: JsonObject) -> str | None:
    """Return the MAC that the plugins of a list set with these arguments: the last one's; None if nothing says it.

    Raises:
        JsonError: A MAC is not a string.
        Refused: All packets of the link would be dropped, because of rules for another MAC.
    """
    macs = [(plugin, _mac_of(plugin, args, capability_args)) for plugin in network.plugins]
    main, made_for = macs[0]
    later, mac = next(((plugin, mac) for plugin, mac in reversed(macs) if mac is not None), macs[0])
    if main.document.get("macspoofchk") is True and mac != made_for:
        raise Refused(
            f"plugin {later.type} of CNI configuration {network.name} gives the link the MAC {mac}, but plugin "
            f"{main.type} has macspoofchk, and drops all packets that have not the MAC with which it made the link "
            f"({made_for or 'a random one'}); give {main.type} the MAC, with "
            f'"args": {{ "cni": {{ "mac": "{mac}" }} }}, or leave out macspoofchk'
        )
    return mac


def _mac_of(plugin: PluginConfiguration, args: Mapping[str, str], capability_args: JsonObject) -> str | None:
    """Return the MAC that a plugin sets, with the precedence that it gives its sources (plugins 1.1.1 and 1.9.1)."""
    document = plugin.document
    passed = find_str(capability_args, "mac") if "mac" in plugin.capabilities else None
    match plugin.type:
        case "bridge":
            mac = passed or find_str(cni_args_of(document), "mac") or args.get("MAC")
        case "macvlan" | "tap":
            mac = passed or args.get("MAC") or find_str(document, "mac")
        case "tuning":
            mac = find_str(cni_args_of(document), "mac") or passed or args.get("MAC") or find_str(document, "mac")
        case _:
            mac = passed
    return None if mac is None else _as_kernel_shows(mac)


def _as_kernel_shows(mac: str) -> str:
    """Return a MAC in any notation that Go's `net.ParseMAC` reads; what is none is left to the plugin."""
    try:
        return bytes.fromhex(mac.translate(_SEPARATORS)).hex(":")
    except ValueError:
        return mac


def can_choose_mac(network: NetworkConfigurationList) -> bool:
    """Return whether the link that a list makes may have a MAC that is chosen before it runs."""
    delegate = DELEGATES.get(network.plugins[0].type)
    return delegate is not None and delegate.has_own_mac


def plan_mac(network: NetworkConfigurationList, mac: str) -> Addressing | None:
    """Return the input that passes a MAC to the plugins; None if none accepts it, because then Docker sets the MAC.

    Each plugin receives it in the way that it reads: `bridge` makes its `macspoofchk` rules for the MAC that it knows,
    even if `tuning` is the one with the capability.
    """
    is_capability = any(_MAC in plugin.capabilities for plugin in network.plugins)
    is_argument = any(
        plugin.type in _READ_MAC_ARGUMENT and _MAC not in plugin.capabilities for plugin in network.plugins
    )
    if not is_capability and not is_argument:
        return None
    return Addressing(
        configuration=network,
        args=(("MAC", mac),) if is_argument else (),
        capability_args={_MAC: mac} if is_capability else {},
    )


def receives_mac(
    network: NetworkConfigurationList, args: Iterable[tuple[str, str]], capability_args: JsonObject
) -> bool:
    """Return whether a plugin of a list receives a MAC in these CNI_ARGS and capability args."""
    if _MAC in capability_args and any(_MAC in plugin.capabilities for plugin in network.plugins):
        return True
    return any(key == "MAC" for key, _ in args) and any(plugin.type in _READ_MAC_ARGUMENT for plugin in network.plugins)


def client_mac(network: str, client_id: str) -> str:
    """Return the MAC of a client identifier. A server that forgets released leases may choose addresses by the MAC."""
    return local_mac(bytes.fromhex(attachment_with_identifier(network, client_id))[:_BYTES])


def refuse_fixed_mac(network: NetworkConfigurationList) -> None:
    """Refuse a requested MAC on a list with a plugin whose agent relies on its own."""
    kind = next((plugin.type for plugin in network.plugins if plugin.type in _MAC_IS_FIXED), None)
    if kind is not None:
        raise Refused(
            f"plugin {kind} of CNI configuration {network.name} does not allow to choose a MAC: its agent has told "
            "the host the MAC that the plugin gave, and a container with another one is unreachable; leave out "
            "--mac-address"
        )


def refuse_multicast(mac: str) -> None:
    """Refuse a multicast address."""
    if int(mac.partition(":")[0], 16) & _MULTICAST:
        raise Refused(
            f"MAC {mac} is a multicast address, which a link cannot have; its first byte must be even, such as 02"
        )


def local_mac(octets: bytes) -> str:
    """Return a locally administered unicast MAC, made of six bytes of a hash."""
    first = octets[0] & ~_MULTICAST | _LOCAL
    return bytes((first, *octets[1:])).hex(":")
