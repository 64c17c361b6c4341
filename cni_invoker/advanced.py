# SPDX-License-Identifier: Apache-2.0
"""For programs that manage links, records or executions themselves, as cni-bridge's daemon does.

These names may change in a minor version.
"""

from cni_invoker.caching.cache import AttachmentCache, AttachmentReader
from cni_invoker.caching.deletion import collect_garbage
from cni_invoker.caching.file_cache import DEFAULT_CACHE_DIR
from cni_invoker.config.directory import ConfigurationIndex, ShadowedConfiguration
from cni_invoker.config.lists import PluginConfiguration, parse_configuration, with_plugins
from cni_invoker.execution.executor import Execution, ExecutionObserver
from cni_invoker.execution.first_iptables_use import DEFAULT_LOCK_DIR
from cni_invoker.execution.network_slots import SLOW_S, NetworkShares, Turn
from cni_invoker.execution.orphaned_plugins import find_orphaned_plugins, kill_orphaned_plugins
from cni_invoker.execution.plugin_exec import FakeExec, NsenterExec, PluginCall, PluginExec, RecordingExec
from cni_invoker.execution.process import Ended
from cni_invoker.execution.request import Request, TraceContext, requests_for_add
from cni_invoker.operations.deletion import RULES_BY_ADDRESS, DeleteHooks, needs_rules
from cni_invoker.operations.preflight import PluginFinding, Role
from cni_invoker.operations.runtime import Collecting
from cni_invoker.recording import FileRecordingExec, Replayed, replay
from cni_invoker.results.convert import convert_result
from cni_invoker.results.result import parse_result
from cni_invoker.sandbox import AttachedNetwork
from cni_invoker.versions import VersionInfo

__all__ = [
    "DEFAULT_CACHE_DIR",
    "DEFAULT_LOCK_DIR",
    "RULES_BY_ADDRESS",
    "SLOW_S",
    "AttachedNetwork",
    "AttachmentCache",
    "AttachmentReader",
    "Collecting",
    "ConfigurationIndex",
    "DeleteHooks",
    "Ended",
    "Execution",
    "ExecutionObserver",
    "FakeExec",
    "FileRecordingExec",
    "NetworkShares",
    "NsenterExec",
    "PluginCall",
    "PluginConfiguration",
    "PluginExec",
    "PluginFinding",
    "RecordingExec",
    "Replayed",
    "Request",
    "Role",
    "ShadowedConfiguration",
    "TraceContext",
    "Turn",
    "VersionInfo",
    "collect_garbage",
    "convert_result",
    "find_orphaned_plugins",
    "kill_orphaned_plugins",
    "needs_rules",
    "parse_configuration",
    "parse_result",
    "replay",
    "requests_for_add",
    "with_plugins",
]
