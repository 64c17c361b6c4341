# SPDX-License-Identifier: Apache-2.0
"""The errors of this package.

```
CniError
├── InvalidParameter       CNI does not allow a container ID, name, path or argument
├── VersionUnsupported     this runtime does not support the CNI version
│   └── NoCommonVersion    the plugins of a list have no version in common
├── VerbUnsupported        the list's version does not have the operation
├── NetworkBusy            other operations used the network or the container for too long
├── PluginStillRuns        a plugin of a killed process cannot be killed
├── GcFailed               plugins failed during garbage collection
├── SandboxFailed          some of a container's attachments failed, or it has none
├── BadConfiguration       a file or document is not a network configuration
├── ConfigurationNotFound  there is no configuration of that name, or none at all
├── BadResult              a document or a plugin's output is not a CNI result
├── AttachmentExists       ADD of an attachment that exists
├── NotAttached            CHECK of an attachment that does not exist
├── CacheError             the attachment cache cannot be read or written
│   ├── CacheDamaged       a cached attachment is unreadable
│   └── CacheUnknown       a cached attachment has a format that this version does not know
└── PluginError            an error of one plugin
    ├── PluginNotFound     it is not in any plugin directory
    ├── PluginNotStarted   the kernel could not execute it
    ├── PluginTimeout      it did not end in time and was killed
    └── PluginFailed       it ended with an error: code, message, details and standard error
```

Every error has a `code` from the CNI specification's table, or 999 (`ErrorCode`). Messages are written for the operator
who has to fix the problem.
"""

from cni_invoker.errors.of_plugins import (
    BadResult,
    PluginError,
    PluginFailed,
    PluginNotFound,
    PluginNotStarted,
    PluginTimeout,
)
from cni_invoker.errors.of_runtime import (
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
    SandboxFailed,
    VerbUnsupported,
    VersionUnsupported,
)

__all__ = [
    "AttachmentExists",
    "BadConfiguration",
    "BadResult",
    "CacheDamaged",
    "CacheError",
    "CacheUnknown",
    "CniError",
    "ConfigurationNotFound",
    "GcFailed",
    "InvalidParameter",
    "NetworkBusy",
    "NoCommonVersion",
    "NotAttached",
    "PluginError",
    "PluginFailed",
    "PluginNotFound",
    "PluginNotStarted",
    "PluginStillRuns",
    "PluginTimeout",
    "SandboxFailed",
    "VerbUnsupported",
    "VersionUnsupported",
]
