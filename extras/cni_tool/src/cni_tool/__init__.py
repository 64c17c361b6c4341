# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A CNI runtime that remembers its attachments, as libcni does, and the command `cni-invoker`, which replaces cnitool.

```python
runtime = CachedRuntime.open("/opt/cni/bin")
network = ConfigurationDirectories("/etc/cni/net.d").index().find("my-network")
attachment = Attachment(container_id="c1", ifname="eth0", netns="/run/netns/c1")
result = await runtime.add(network, attachment)
await runtime.delete(network, attachment)
```

The other names are those of the library `cni_invoker`.
"""

from cni_tool.errors import AttachmentExists, CacheDamaged, CacheError, NotAttached
from cni_tool.file_cache import DEFAULT_CACHE_DIR, FileCache
from cni_tool.record import CachedAttachment
from cni_tool.runtime import CachedRuntime

__all__ = [
    "DEFAULT_CACHE_DIR",
    "AttachmentExists",
    "CacheDamaged",
    "CacheError",
    "CachedAttachment",
    "CachedRuntime",
    "FileCache",
    "NotAttached",
]

__version__ = "0.1.0"
