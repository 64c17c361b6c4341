# SPDX-License-Identifier: Apache-2.0
"""For programs that manage links, records or executions themselves, as cni-bridge's daemon does.

These names may change in a minor version. No other name needs one of them, except the parameter `hooks` of
`Runtime.delete`.
"""

from cni_invoker.caching.deletion import collect_garbage
from cni_invoker.config.lists import parse_configuration, with_plugins
from cni_invoker.execution.network_slots import SLOW_S, NetworkShares, Turn
from cni_invoker.execution.orphaned_plugins import find_orphaned_plugins, kill_orphaned_plugins
from cni_invoker.execution.plugin_exec import FakeExec, NsenterExec, RecordingExec
from cni_invoker.execution.request import requests_for_add
from cni_invoker.execution.running_files import RunningPlugin, find_running
from cni_invoker.operations.deletion import RULES_BY_ADDRESS, DeleteHooks, needs_rules
from cni_invoker.results.convert import convert_result
from cni_invoker.results.result import parse_result

__all__ = [
    "RULES_BY_ADDRESS",
    "SLOW_S",
    "DeleteHooks",
    "FakeExec",
    "NetworkShares",
    "NsenterExec",
    "RecordingExec",
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
