# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""HTTP on the plugin socket: Docker's calls. Only `assembly` and `server.py` import it."""

from cnm_bridge.server.api.calls_under_way import CallsUnderWay
from cnm_bridge.server.api.methods import ipam_driver, network_driver
from cnm_bridge.server.api.rpc import MAX_BODY_BYTES, Method, make_app

__all__ = [
    "MAX_BODY_BYTES",
    "CallsUnderWay",
    "Method",
    "ipam_driver",
    "make_app",
    "network_driver",
]
