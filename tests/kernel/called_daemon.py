# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A daemon in this process, with one list, on real and on shell plugins; `tests/driver_calls.py` has its calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, render_json
from cnm_bridge.assembly import Daemon
from cnm_bridge.core.settings import Settings
from tests.kernel.real_plugins import find_plugins
from tests.records import settings_in

LIMIT_S: Final = 60.0
"""Only ends a test that fails."""


def write_plugin(path: Path, script: str) -> None:
    """Write a plugin in shell that answers VERSION."""
    version = """echo '{"cniVersion": "1.0.0", "supportedVersions": ["1.0.0"]}'; exit 0"""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$CNI_COMMAND" = VERSION ] && {{ {version}; }}\n{script}\n')
    path.chmod(0o755)


def host_local(subnet: str, *, first: str = "", last: str = "", **more: str) -> JsonObject:
    """Return an IPAM section with one range, which may be a part of its subnet."""
    part = {"rangeStart": first, "rangeEnd": last or first} if first else {}
    return {"type": "host-local", "ranges": [[{"subnet": subnet, **part}]], **more}


def configure(directory: Path, name: str, *plugins: JsonObject, **settings: float) -> Settings:
    """Write a list; return the settings of a daemon whose plugins are in `bin`, or the machine's, without an engine."""
    lists = directory / "net.d"
    lists.mkdir()
    document: JsonObject = {"cniVersion": "1.0.0", "name": name, "plugins": [*plugins]}
    lists.joinpath(f"{name}.conflist").write_bytes(render_json(document))
    directories = directory / "bin", find_plugins("machine").directory
    return settings_in(directory, cni_bin_dirs=directories, cni_conf_dirs=(lists,), **settings)


@asynccontextmanager
async def tearing_down(daemon: Daemon) -> AsyncIterator[None]:
    """Run the daemon's teardowns in the background for the length of the block."""
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as tasks:
        background = tasks.create_task(daemon.teardowns.run())
        yield
        background.cancel()
