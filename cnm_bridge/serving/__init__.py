# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""HTTP on a listening socket that strangers can reach: what they can take of the daemon is limited."""

from cnm_bridge.serving.pending_connections import PendingConnections

__all__ = ["PendingConnections"]
