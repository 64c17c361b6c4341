# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What CNI plugins leave on a host under a container ID: reservations, iptables rules. Read only."""

from cnm_bridge.traces.reservations import find_reservations
from cnm_bridge.traces.rules import find_rules, parse_rules
from cnm_bridge.traces.trace import Trace

__all__ = ["Trace", "find_reservations", "find_rules", "parse_rules"]
