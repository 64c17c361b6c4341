# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""HTTP on a listening socket that strangers can reach: what they can take of the daemon is limited."""

from cnm_bridge.server.serving.acceptor import accepting
from cnm_bridge.server.serving.pending_connections import PendingConnections
from cnm_bridge.server.serving.runner import running

__all__ = ["PendingConnections", "accepting", "running"]
