# SPDX-License-Identifier: Apache-2.0
"""A CNI runtime: what libcni is to Go, for Python, with asyncio.

```python
runtime = Runtime("/opt/cni/bin")
network = ConfigurationDirectories("/etc/cni/net.d").index().find("my-network")
attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
result = await runtime.add(network, attachment)
await runtime.delete(network, attachment, result)
```

The caller keeps what DEL needs. A runtime that stores it, as libcni does, is `CachedRuntime` in the distribution
`cni-tool`.

It needs Linux 5.3. Besides the names here there are:

* `cni_invoker.errors`: all errors;
* `cni_invoker.advanced`: for programs that manage links and records themselves. It may change in minor versions.

Each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cni_invoker.config_directories import (
        ConfigurationDirectories,
        ConfigurationIndex,
        ShadowedConfiguration,
        read_configuration,
    )
    from cni_invoker.documents.attachment import Attachment, AttachmentKey
    from cni_invoker.documents.checks import StrPath
    from cni_invoker.documents.jsontypes import JsonObject, JsonValue
    from cni_invoker.documents.lists import NetworkConfigurationList, PluginConfiguration
    from cni_invoker.documents.request import Request
    from cni_invoker.documents.results import Dns, Interface, IpAssignment, Result, Route
    from cni_invoker.documents.versions import SUPPORTED_VERSIONS, Verb, VersionInfo
    from cni_invoker.errors import CniError, ErrorCode, PluginError, PluginFailed
    from cni_invoker.execution.executor import Execution
    from cni_invoker.execution.first_iptables_use import DEFAULT_LOCK_DIR
    from cni_invoker.execution.in_process import installed_plugins
    from cni_invoker.execution.limits import Limits
    from cni_invoker.preflight import PluginFinding, Preflight, run_preflight
    from cni_invoker.runtime import Runtime

__all__ = [
    "DEFAULT_LOCK_DIR",
    "SUPPORTED_VERSIONS",
    "Attachment",
    "AttachmentKey",
    "CniError",
    "ConfigurationDirectories",
    "ConfigurationIndex",
    "Dns",
    "ErrorCode",
    "Execution",
    "Interface",
    "IpAssignment",
    "JsonObject",
    "JsonValue",
    "Limits",
    "NetworkConfigurationList",
    "PluginConfiguration",
    "PluginError",
    "PluginFailed",
    "PluginFinding",
    "Preflight",
    "Request",
    "Result",
    "Route",
    "Runtime",
    "ShadowedConfiguration",
    "StrPath",
    "Verb",
    "VersionInfo",
    "installed_plugins",
    "read_configuration",
    "run_preflight",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "config_directories": (
        "ConfigurationDirectories",
        "ConfigurationIndex",
        "ShadowedConfiguration",
        "read_configuration",
    ),
    "documents.attachment": ("Attachment", "AttachmentKey"),
    "documents.checks": ("StrPath",),
    "documents.jsontypes": ("JsonObject", "JsonValue"),
    "documents.lists": ("NetworkConfigurationList", "PluginConfiguration"),
    "documents.request": ("Request",),
    "documents.results": ("Dns", "Interface", "IpAssignment", "Result", "Route"),
    "documents.versions": ("SUPPORTED_VERSIONS", "Verb", "VersionInfo"),
    "errors": ("CniError", "ErrorCode", "PluginError", "PluginFailed"),
    "execution.executor": ("Execution",),
    "execution.first_iptables_use": ("DEFAULT_LOCK_DIR",),
    "execution.in_process": ("installed_plugins",),
    "execution.limits": ("Limits",),
    "preflight": ("PluginFinding", "Preflight", "run_preflight"),
    "runtime": ("Runtime",),
}
"""Where each name is defined. A plugin, or a command that only prints help, does not pay for the whole runtime."""


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            found: object = getattr(import_module(f"{__name__}.{home}"), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
