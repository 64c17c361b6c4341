# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins whose DEL removes rules by address alone, and whether another attachment needs these rules; pure."""

from collections.abc import Collection
from typing import Final

__all__ = ["RULES_BY_ADDRESS", "needs_rules"]

RULES_BY_ADDRESS: Final = frozenset({"firewall"})
"""Types of plugins that find their rules by the result's addresses alone, whichever container has these addresses.

All other known plugins find their work by container ID (`bridge` and `ptp`: a chain named after a hash of network and
ID; `portmap`, `bandwidth`: the same; `host-local`, `tuning`: files), by the container's name (`dnsname`), or in the
container's namespace (`sbr`, `vrf`, `route-override`); or they delete nothing (`isolation`).
"""


def needs_rules(
    plugin: str, addresses: Collection[str], *, other_types: Collection[str] | None, other_addresses: Collection[str]
) -> bool:
    """Return whether another attachment needs rules that the DEL of `plugin` would remove.

    The other attachment is one that is not being deleted. If it needs the rules, `plugin` receives no result and leaves
    them; the DEL of the other attachment, which runs the same plugin with the same address, removes them later. An
    attachment whose list lacks the plugin would never remove them, so it does not count.

    Args:
        plugin: The plugin's type.
        addresses: Addresses of the attachment that is being deleted, without prefixes.
        other_types: Plugin types of the other attachment; None if unknown, which counts as needing the rules.
        other_addresses: Addresses of the other attachment, without prefixes.
    """
    if plugin not in RULES_BY_ADDRESS or not set(addresses).intersection(other_addresses):
        return False
    return other_types is None or plugin in other_types
