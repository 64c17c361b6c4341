# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The Docker Engine API: what the driver calls do not tell. No call needs it."""

from cnm_bridge.engine.client import Engine
from cnm_bridge.engine.network import LOCAL, EngineEndpoint, EngineNetwork

__all__ = ["LOCAL", "Engine", "EngineEndpoint", "EngineNetwork"]
