# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The core decides without effects: importing it loads nothing that could have any."""

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[4]
WITH_EFFECTS: Final = {
    "aiodocker",
    "aiohttp",
    "click",
    "jsonschema",
    "plyvel",
    "prometheus_client",
    "pyroute2",
    "structlog",
    # Of the standard library:
    "_posixsubprocess",
    "asyncio",
    "fcntl",
    "logging",
    "select",
    "socket",
    "subprocess",
}
PURE_HALF: Final = ("cni_invoker.documents", "cni_invoker.errors")
"""The modules of the library that the core may load, besides the package itself."""
IMPORT_ALL: Final = """
import importlib, pkgutil, sys
import cnm_bridge.core
for module in pkgutil.walk_packages(cnm_bridge.core.__path__, "cnm_bridge.core."):
    importlib.import_module(module.name)
print(*sys.modules)
"""


def loaded() -> list[str]:
    """Return the modules that a fresh interpreter has loaded after it has imported every module of the core."""
    command = [sys.executable, "-c", IMPORT_ALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_core_loads_no_library_with_effects() -> None:
    """Neither netlink, nor HTTP, nor the database, nor the log; it cannot start a program, lock or wait."""
    modules = loaded()
    assert "cnm_bridge.core.planning.plan" in modules
    assert WITH_EFFECTS.isdisjoint({name.partition(".")[0] for name in modules})


def test_the_core_loads_the_pure_half_of_the_library() -> None:
    """Names that it imports from the package are defined there, too."""
    library = {name for name in loaded() if name.startswith("cni_invoker.")}
    assert "cni_invoker.documents.lists" in library
    assert {name for name in library if not name.startswith(PURE_HALF)} == set()
