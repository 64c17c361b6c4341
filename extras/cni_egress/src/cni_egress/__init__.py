# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The CNI plugin `egress`: a container reaches only what its network allows, from its first packet on.

It imports nothing of the daemon of cni-bridge, and little of anything, because it starts anew for each call.
"""

__version__ = "0.1.0"
