# SPDX-License-Identifier: Apache-2.0
"""A CNI runtime: what libcni is to Go, for Python, with asyncio or without.

```python
cache = FileCache()
runtime = CachedRuntime(Runtime("/opt/cni/bin", running_dir=cache.running_dir), cache)
network = ConfigurationDirectories("/etc/cni/net.d").index().find("my-network")
attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
result = await runtime.add(network, attachment)
await runtime.delete(network, attachment)
```

It needs Linux 5.3. Besides the names here there are:

* `cni_invoker.sync`: the same for programs without asyncio;
* `cni_invoker.plugin`: for plugins written in Python;
* `cni_invoker.errors`: all errors;
* `cni_invoker.results`: the parts of a result;
* `cni_invoker.advanced`: for programs that manage links and records themselves. It may change in minor versions.

Each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cni_invoker.caching.cache import CachedAttachment, MemoryCache
    from cni_invoker.caching.file_cache import FileCache
    from cni_invoker.caching.runtime import CachedRuntime
    from cni_invoker.config.directory import ConfigurationDirectories, read_configuration
    from cni_invoker.config.lists import NetworkConfigurationList
    from cni_invoker.errors import CniError, PluginError, PluginFailed
    from cni_invoker.execution.limits import Limits
    from cni_invoker.inputs.attachment import Attachment, AttachmentKey
    from cni_invoker.inputs.capabilities import Bandwidth, Capabilities, PortMapping
    from cni_invoker.operations.preflight import Preflight, run_preflight
    from cni_invoker.operations.runtime import Runtime
    from cni_invoker.protocol import ErrorCode, Verb
    from cni_invoker.results.result import Result
    from cni_invoker.sandbox import Sandbox, SandboxNetwork, collect_sandboxes, list_sandboxes
    from cni_invoker.versions import SUPPORTED_VERSIONS

__all__ = [
    "SUPPORTED_VERSIONS",
    "Attachment",
    "AttachmentKey",
    "Bandwidth",
    "CachedAttachment",
    "CachedRuntime",
    "Capabilities",
    "CniError",
    "ConfigurationDirectories",
    "ErrorCode",
    "FileCache",
    "Limits",
    "MemoryCache",
    "NetworkConfigurationList",
    "PluginError",
    "PluginFailed",
    "PortMapping",
    "Preflight",
    "Result",
    "Runtime",
    "Sandbox",
    "SandboxNetwork",
    "Verb",
    "collect_sandboxes",
    "list_sandboxes",
    "read_configuration",
    "run_preflight",
]

__version__ = "0.1.0"

_HOMES: Final = {
    "inputs.attachment": ("Attachment", "AttachmentKey"),
    "caching.cache": ("CachedAttachment", "MemoryCache"),
    "caching.file_cache": ("FileCache",),
    "caching.runtime": ("CachedRuntime",),
    "inputs.capabilities": ("Bandwidth", "Capabilities", "PortMapping"),
    "config.directory": ("ConfigurationDirectories", "read_configuration"),
    "config.lists": ("NetworkConfigurationList",),
    "errors": ("CniError", "PluginError", "PluginFailed"),
    "execution.limits": ("Limits",),
    "operations.preflight": ("Preflight", "run_preflight"),
    "results.result": ("Result",),
    "operations.runtime": ("Runtime",),
    "sandbox": ("Sandbox", "SandboxNetwork", "collect_sandboxes", "list_sandboxes"),
    "protocol": ("ErrorCode", "Verb"),
    "versions": ("SUPPORTED_VERSIONS",),
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
