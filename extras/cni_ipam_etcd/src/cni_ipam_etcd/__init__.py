# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The CNI IPAM plugin `cni-ipam-etcd`: addresses that are unique in a cluster; see docs/ipam.md.

It imports nothing of the daemon, and little of anything, because it starts anew for each call.
"""

__version__ = "0.1.0"
