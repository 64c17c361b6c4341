# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Asks the engine for the names of networks that the daemon does not know yet."""

import asyncio
from collections.abc import Mapping
from typing import Final

from cni_bridge_spec import JsonObject, find_str, get_bool, get_object, get_objects
from cnm_bridge.core.errors import EngineUnavailable
from cnm_bridge.system.engine import Engine

__all__ = ["find_names"]

_LIMIT_S: Final = 2.0


def find_names(status: JsonObject, docker_host: str) -> Mapping[str, str]:
    """Return the names of networks by ID if some of a status have none; nothing if the engine does not answer.

    The daemon learns names in a comparison, so networks made since the last one have none.

    Args:
        status: The document, `spec/admin/status.json`.
        docker_host: The address of the engine.
    """
    is_complete = all(find_str(one, "name") for one in get_objects(status, "networks"))
    if is_complete or not get_bool(get_object(status, "engine"), "isUp"):
        return {}
    try:
        return asyncio.run(Engine(docker_host, _LIMIT_S).network_names())
    except EngineUnavailable:
        return {}
