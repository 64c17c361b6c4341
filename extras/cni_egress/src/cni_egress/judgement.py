# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a policy's chain does with a packet, in words; pure. It follows the rules of `cni_egress.tables`."""

from collections.abc import Iterable
from typing import Final

from cni_egress.policy import IpNetwork, NetworkRule, Policy, Protocol
from cni_egress.records import IpAddress
from cni_egress.tables import METADATA, is_special

__all__ = ["find_permission"]

_DNS: Final = 53


def find_permission(
    policy: Policy,
    subnets: Iterable[IpNetwork],
    destination: IpAddress,
    protocol: int,
    port: int,
    *,
    is_hosts_own: bool,
) -> str:
    """Return what lets a new connection pass whatever names have opened; empty if nothing does.

    Args:
        policy: The policy of the container; that it may be one that only watches does not count.
        subnets: The networks of the container.
        destination: Where the connection goes.
        protocol: The number of its protocol.
        port: Its port; 0 if the protocol has none.
        is_hosts_own: Whether the destination is an address of the host.

    Returns:
        An entry of the policy, such as `10.0.5.0/24:5432/tcp`, or other words.
    """
    if policy.needs_responder and protocol in {Protocol.TCP, Protocol.UDP} and port == _DNS:
        return "queries go to cni-egress"
    if is_hosts_own:
        return next((f"host:{one}" for one in policy.host if one.covers(protocol, port)), "")
    if any(destination in one for one in subnets):
        return "containers of the network reach each other"
    is_metadata = any(destination in one for one in METADATA)
    for rule in policy.networks:
        if is_metadata and not is_special(rule.network):
            continue
        if destination in rule.network and rule.ports.covers(protocol, port):
            return _entry(rule)
    return ""


def _entry(rule: NetworkRule) -> str:
    network = rule.network
    text = str(network) if network.num_addresses > 1 else str(network.network_address)
    if rule.ports.protocol is Protocol.ANY:
        return text
    return f"[{text}]:{rule.ports}" if network.version == 6 else f"{text}:{rule.ports}"  # noqa: PLR2004
