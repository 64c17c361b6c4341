# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A CNI runtime: what libcni is to Go, usable without Docker.

```python
directories = ConfigurationDirectories([Path("/etc/cni/net.d")])
runtime = Runtime([Path("/opt/cni/bin")], Limits())
network = await runtime.negotiate(directories.index().find("my-network"))
attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
result = await runtime.add(network, attachment)
await runtime.delete(network, attachment, result)
```

It needs a running asyncio event loop and Linux 5.3.
"""

from cni_invoker.attachment import Attachment, AttachmentKey
from cni_invoker.caching.cache import AttachmentCache, AttachmentReader, CachedAttachment, MemoryCache
from cni_invoker.caching.file_cache import DEFAULT_CACHE_DIR, FileCache
from cni_invoker.caching.locked_gc import collect_garbage
from cni_invoker.caching.runtime import CachedRuntime
from cni_invoker.codes import ErrorCode
from cni_invoker.config.directory import (
    ConfigurationDirectories,
    ConfigurationIndex,
    ShadowedConfiguration,
    read_configuration,
)
from cni_invoker.config.lists import NetworkConfigurationList, PluginConfiguration, parse_configuration
from cni_invoker.errors import (
    AddressClaimed,
    AttachmentExists,
    BadConfiguration,
    CacheDamaged,
    CacheError,
    CacheUnknown,
    CniError,
    ConfigurationNotFound,
    GcFailed,
    InvalidParameter,
    NetworkBusy,
    NoCommonVersion,
    NotAttached,
    PluginStillRuns,
    VerbUnsupported,
    VersionUnsupported,
)
from cni_invoker.execution.executor import ExecutionObserver
from cni_invoker.execution.first_iptables_use import DEFAULT_LOCK_DIR
from cni_invoker.execution.limits import Limits
from cni_invoker.execution.orphaned_plugins import find_orphaned_plugins, kill_orphaned_plugins
from cni_invoker.execution.request import Request
from cni_invoker.execution.trace_context import TraceContext
from cni_invoker.plugin_errors import (
    BadResult,
    PluginError,
    PluginFailed,
    PluginNotFound,
    PluginNotStarted,
    PluginTimeout,
)
from cni_invoker.preflight import PluginFinding, Preflight, Role, run_preflight
from cni_invoker.results.convert import convert_result
from cni_invoker.results.result import Dns, Interface, IpAssignment, Result, Route, parse_result
from cni_invoker.rules_by_address import needs_rules
from cni_invoker.runtime import Collecting, Runtime
from cni_invoker.verbs import Verb
from cni_invoker.versions import SUPPORTED_VERSIONS, VersionInfo

__all__ = [
    "DEFAULT_CACHE_DIR",
    "DEFAULT_LOCK_DIR",
    "SUPPORTED_VERSIONS",
    "AddressClaimed",
    "Attachment",
    "AttachmentCache",
    "AttachmentExists",
    "AttachmentKey",
    "AttachmentReader",
    "BadConfiguration",
    "BadResult",
    "CacheDamaged",
    "CacheError",
    "CacheUnknown",
    "CachedAttachment",
    "CachedRuntime",
    "CniError",
    "Collecting",
    "ConfigurationDirectories",
    "ConfigurationIndex",
    "ConfigurationNotFound",
    "Dns",
    "ErrorCode",
    "ExecutionObserver",
    "FileCache",
    "GcFailed",
    "Interface",
    "InvalidParameter",
    "IpAssignment",
    "Limits",
    "MemoryCache",
    "NetworkBusy",
    "NetworkConfigurationList",
    "NoCommonVersion",
    "NotAttached",
    "PluginConfiguration",
    "PluginError",
    "PluginFailed",
    "PluginFinding",
    "PluginNotFound",
    "PluginNotStarted",
    "PluginStillRuns",
    "PluginTimeout",
    "Preflight",
    "Request",
    "Result",
    "Role",
    "Route",
    "Runtime",
    "ShadowedConfiguration",
    "TraceContext",
    "Verb",
    "VerbUnsupported",
    "VersionInfo",
    "VersionUnsupported",
    "collect_garbage",
    "convert_result",
    "find_orphaned_plugins",
    "kill_orphaned_plugins",
    "needs_rules",
    "parse_configuration",
    "parse_result",
    "read_configuration",
    "run_preflight",
]
