# SPDX-License-Identifier: Apache-2.0
"""For programs that manage links, records or executions themselves, as cni-bridge's daemon does.

These names may change in a minor version. No other name needs one of them, except the parameter `hooks` of
`Runtime.delete`.
"""

from cni_invoker.caching.deletion import collect_garbage
from cni_invoker.config.lists import parse_configuration, with_plugins
from cni_invoker.execution.executor import NsenterExec
from cni_invoker.execution.limits import SLOW_S, NetworkShares, Turn
from cni_invoker.execution.request import requests_for_add
from cni_invoker.execution.running_plugins import (
    RunningPlugin,
    find_orphaned_plugins,
    find_running,
    kill_orphaned_plugins,
)
from cni_invoker.operations.deletion import RULES_BY_ADDRESS, DeleteHooks, needs_rules
from cni_invoker.result_documents import convert_result
from cni_invoker.results import parse_result

__all__ = [
    "RULES_BY_ADDRESS",
    "SLOW_S",
    "DeleteHooks",
    "NetworkShares",
    "NsenterExec",
    "RunningPlugin",
    "Turn",
    "collect_garbage",
    "convert_result",
    "find_orphaned_plugins",
    "find_running",
    "kill_orphaned_plugins",
    "needs_rules",
    "parse_configuration",
    "parse_result",
    "requests_for_add",
    "with_plugins",
]
