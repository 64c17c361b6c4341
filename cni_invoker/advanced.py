# SPDX-License-Identifier: Apache-2.0
"""For programs that manage links, records or executions themselves, as cni-bridge's daemon does.

These names may change in a minor version. No other name needs one of them, except the parameter `hooks` of
`Runtime.delete`.
"""

from cni_invoker.deletion import DeleteHooks
from cni_invoker.documents.known_plugins import RULES_BY_ADDRESS, needs_rules
from cni_invoker.documents.lists import parse_configuration
from cni_invoker.documents.request import requests_for_add
from cni_invoker.documents.result_documents import convert_result
from cni_invoker.documents.results import parse_result
from cni_invoker.execution.limits import NetworkSlots
from cni_invoker.execution.running_plugins import RunningPlugin, find_running, kill_orphaned_plugins

__all__ = [
    "RULES_BY_ADDRESS",
    "DeleteHooks",
    "NetworkSlots",
    "RunningPlugin",
    "convert_result",
    "find_running",
    "kill_orphaned_plugins",
    "needs_rules",
    "parse_configuration",
    "parse_result",
    "requests_for_add",
]
