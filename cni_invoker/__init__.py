# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A CNI runtime: what libcni is to Go, usable without Docker.

```python
directories = ConfigurationDirectories([Path("/etc/cni/net.d")])
runtime = Runtime([Path("/opt/cni/bin")], Limits())
network = directories.index().find("my-network")
attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
result = await runtime.add(network, attachment)
await runtime.delete(network, attachment, result)
```

It needs a running asyncio event loop and Linux 5.3.
"""

from cni_invoker.attachment import Attachment
from cni_invoker.config import NetworkConfigurationList, PluginConfiguration, parse_configuration
from cni_invoker.directory import (
    ConfigurationDirectories,
    ConfigurationIndex,
    ShadowedConfiguration,
    read_configuration,
)
from cni_invoker.errors import (
    BadConfiguration,
    BadResult,
    CniError,
    ConfigurationNotFound,
    InvalidParameter,
    PluginError,
    PluginFailed,
    PluginNotFound,
    PluginNotStarted,
    PluginTimeout,
    VersionUnsupported,
)
from cni_invoker.limits import Limits
from cni_invoker.result import Dns, Interface, IpAssignment, Result, Route, parse_result
from cni_invoker.runtime import ExecutionObserver, Runtime
from cni_invoker.strays import end_strays
from cni_invoker.verbs import Verb
from cni_invoker.versions import SUPPORTED_VERSIONS

__all__ = [
    "SUPPORTED_VERSIONS",
    "Attachment",
    "BadConfiguration",
    "BadResult",
    "CniError",
    "ConfigurationDirectories",
    "ConfigurationIndex",
    "ConfigurationNotFound",
    "Dns",
    "ExecutionObserver",
    "Interface",
    "InvalidParameter",
    "IpAssignment",
    "Limits",
    "NetworkConfigurationList",
    "PluginConfiguration",
    "PluginError",
    "PluginFailed",
    "PluginNotFound",
    "PluginNotStarted",
    "PluginTimeout",
    "Result",
    "Route",
    "Runtime",
    "ShadowedConfiguration",
    "Verb",
    "VersionUnsupported",
    "end_strays",
    "parse_configuration",
    "parse_result",
    "read_configuration",
]
