# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What CNI plugins leave on a host under a container ID: reservations, iptables rules. Read only."""

from cnm_bridge.traces.ifbs import IFB_KIND, ifb_name, is_ifb_name, noted_ifb_names
from cnm_bridge.traces.reservations import find_reservations
from cnm_bridge.traces.rules import find_rules, parse_rules
from cnm_bridge.traces.trace import Trace

__all__ = [
    "IFB_KIND",
    "Trace",
    "find_reservations",
    "find_rules",
    "ifb_name",
    "is_ifb_name",
    "noted_ifb_names",
    "parse_rules",
]
