# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A client of the Docker Engine API, for what the driver calls do not contain. No driver call depends on it."""

from cnm_bridge.engine.client import Engine
from cnm_bridge.engine.container import EngineContainer, StartingContainer, container_of_cgroup
from cnm_bridge.engine.known_release import KnownRelease
from cnm_bridge.engine.network import EngineEndpoint, EngineNetwork
from cnm_bridge.engine.release import EngineRelease

__all__ = [
    "Engine",
    "EngineContainer",
    "EngineEndpoint",
    "EngineNetwork",
    "EngineRelease",
    "KnownRelease",
    "StartingContainer",
    "container_of_cgroup",
]
