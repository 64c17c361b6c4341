# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reads what a new network depends on: what exists on the host, and with what plugins make their rules."""

import shutil
from pathlib import Path

from cni_invoker import ConfigurationDirectories, Preflight
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.networks.collisions import HostFacts, HostLink
from cnm_bridge.operator.networks.list_document import NFTABLES_KEYS, Backend, choose_backend
from cnm_bridge.operator.networks.list_file import find_taken_paths
from cnm_bridge.system.engine import Engine
from cnm_bridge.system.kernel import KernelView

__all__ = ["find_backend", "gather_host", "require_nftables"]


async def gather_host(settings: Settings, engine: Engine, file: Path) -> HostFacts:
    """Return what could be in the way of a new list in `file`.

    Raises:
        EngineUnavailable: The engine does not answer.
        KernelError: The host's links cannot be read.
    """
    kernel = KernelView(reply_limit_s=settings.netlink_timeout_s)
    addresses = await kernel.host_addresses()
    index = ConfigurationDirectories(settings.cni_conf_dirs).index()
    return HostFacts(
        links={
            link.state.name: HostLink(
                kind=link.state.kind,
                mtu=link.state.mtu,
                addresses=tuple(address for address, name in addresses if name == link.state.name),
            )
            for link in await kernel.host_links()
        },
        routes=await kernel.host_destinations(),
        docker_networks=frozenset((await engine.network_names()).values()),
        docker_subnets=await engine.subnets(),
        lists=tuple(map(index.find, index.names)),
        paths=find_taken_paths(file),
    )


def find_backend() -> Backend:
    """Return the packet filter for the plugins of this host.

    Raises:
        Refused: It has none.
    """
    return choose_backend(has_iptables=shutil.which("iptables") is not None, has_nft=shutil.which("nft") is not None)


def require_nftables(found: Preflight) -> None:
    """Raise `Refused` if a plugin ignores the key that chooses nftables, so that its ADD runs iptables, and fails."""
    for plugin in found.plugins:
        key = NFTABLES_KEYS.get(plugin.type)
        # The executables of the CNI project contain the names of their keys, as tags of Go's structures.
        if key is not None and plugin.path is not None and f'json:"{key}'.encode() not in plugin.path.read_bytes():
            raise Refused(
                f"this host has nft and no iptables, and {plugin.path} knows iptables only: apt-get install iptables, "
                "or install the CNI project's plugins in a newer release (1.9 does)"
            )
