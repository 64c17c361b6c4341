# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which containers can change the host's network, by dockerd's `hostconfig.json`; pure.

The kernel asks whether a process has CAP_NET_ADMIN in the user namespace that owns a network namespace. A container is
in the host's user namespace unless dockerd remaps users. With CAP_NET_ADMIN it can then make and delete links in the
host's network namespace, which the container knows as the peer of its own link (linux `net/core/rtnetlink.c`,
rtnl_get_net_ns_capable).
"""

from collections.abc import Iterable
from typing import Final

from cni_bridge_spec import JsonObject, find_str, get_strings

_REACHING: Final = frozenset({"NET_ADMIN", "SYS_ADMIN", "SYS_MODULE"})
"""NET_ADMIN, and those with which a process can run code in the kernel or change other processes."""
_ALL: Final = "ALL"
_HOST: Final = "host"


def find_privileges(host_config: JsonObject, *, remaps_users: bool) -> tuple[str, ...]:
    """Return the options of `docker run` with which a container can change the host's network; none if it cannot.

    moby `oci/caps/utils.go` (TweakCapabilities): a capability that is both added and dropped stays, except after `ALL`.

    Args:
        host_config: `{"Privileged": false, "CapAdd": ["CAP_NET_ADMIN"], "CapDrop": null, "UsernsMode": ""}`
        remaps_users: Whether the engine remaps users.

    Raises:
        JsonError: A value has another type.
    """
    if remaps_users and find_str(host_config, "UsernsMode") != _HOST:
        return ()
    if host_config.get("Privileged"):
        return ("--privileged",)
    added, dropped = (set(_names(get_strings(host_config, key))) for key in ("CapAdd", "CapDrop"))
    if _ALL in added:
        return ("--cap-add ALL",) if _REACHING - dropped else ()
    return tuple(f"--cap-add {name}" for name in sorted(_REACHING & added))


def _names(capabilities: Iterable[str]) -> Iterable[str]:
    return (name.upper().removeprefix("CAP_") for name in capabilities)
