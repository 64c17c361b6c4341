# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""HTTP: the plugin socket and the calls that Docker makes on it."""

from cnm_bridge.api.network_driver import network_driver
from cnm_bridge.api.rpc import MAX_BODY_BYTES, Method, make_app
from cnm_bridge.api.sockets import listening

__all__ = ["MAX_BODY_BYTES", "Method", "listening", "make_app", "network_driver"]
