# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins whose work cannot leave the staging namespace, or loses a part on the way; pure."""

from collections.abc import Mapping
from typing import Final

from cni_invoker import NetworkConfigurationList
from cnm_bridge.errors import Refused

__all__ = ["refuse_unsuitable", "what_is_lost"]

_UNSUITABLE: Final[Mapping[str, str]] = {
    "dhcp": "its daemon loses the link when Docker takes it, and the lease runs out; use host-local or static",
    "vrf": "a VRF cannot be carried into the container",
}
_LOSSY: Final[Mapping[str, str]] = {
    "tuning": "its sysctls do not reach the container; MAC, MTU and flags do",
    "sbr": "its rules and routing tables do not reach the container",
}


def refuse_unsuitable(network: NetworkConfigurationList) -> None:
    """Refuse a list with a plugin that cannot work.

    Raises:
        Refused: The plugin, and why.
    """
    for plugin in network.plugins:
        for name in (plugin.type, plugin.ipam_type):
            if name is not None and name in _UNSUITABLE:
                raise Refused(f"CNI configuration {network.name} cannot be used: plugin {name}: {_UNSUITABLE[name]}")


def what_is_lost(network: NetworkConfigurationList) -> tuple[str, ...]:
    """Return, in words, what the plugins of a list will do in vain."""
    return tuple(f"plugin {plugin.type}: {_LOSSY[plugin.type]}" for plugin in network.plugins if plugin.type in _LOSSY)
