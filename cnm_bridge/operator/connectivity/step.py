# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a connectivity test has found. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

__all__ = ["LOOK_AT", "Outcome", "Step", "failed_steps"]


class Outcome(StrEnum):
    """The outcome of a step."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It does not apply to this network; the detail says why."""


LOOK_AT: Final = {
    "start": "cni-bridge explain NETWORK, cni-bridge doctor, and journalctl -u cni-bridge -p warning",
    "addresses": "the IPAM part of the configuration, and cni-bridge explain NETWORK",
    "peer": "cni-bridge doctor: often the policy of FORWARD, and a list without the plugin firewall",
    "gateway": "the link of the gateway on the host (ip addr), and rules in the chain INPUT",
    "outside": "cni-bridge doctor; masquerading (ipMasq) in the configuration; the router's way back to the subnet",
    "names": "docker exec CONTAINER cat /etc/resolv.conf, and dockerd's log",
    "port": "iptables -t nat -S, or nft list ruleset, for the port; the plugin portmap in the list",
    "mtu": "the MTU of the bridge or parent link: ip link; a tunnel below it needs a smaller one (mtu in the list)",
    "cleanup": "cni-bridge status, which shows why a teardown is pending",
}
"""Step → what to look at if it fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        name: A key of `LOOK_AT`.
        outcome: Its outcome.
        detail: What was reached, why it failed, or why it was skipped.
    """

    name: str
    outcome: Outcome
    detail: str


def failed_steps(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Return the steps that have failed."""
    return tuple(step for step in steps if step.outcome is Outcome.FAILED)
