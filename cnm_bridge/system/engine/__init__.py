# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A client of the Docker Engine API, for what the driver calls do not contain. No driver call depends on it."""

from cnm_bridge.system.engine.client import Engine
from cnm_bridge.system.engine.known_release import KnownRelease

__all__ = [
    "Engine",
    "KnownRelease",
]
