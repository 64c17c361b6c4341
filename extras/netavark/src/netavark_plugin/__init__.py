# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin of netavark, podman's network stack, that runs CNI plugins: see docs/podman.md.

It needs the library `cni_invoker`, and nothing of the daemon. `cnm_plugin` is the opposite: a CNI plugin.
"""

__version__ = "0.1.0"
