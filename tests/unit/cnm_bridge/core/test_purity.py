# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The core decides without effects: its modules import nothing that has any, and nor does what they import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[4]
CORE: Final = ROOT / "cnm_bridge" / "core"
OF_PYTHON: Final = frozenset(
    {
        *("base64", "binascii", "collections", "contextlib", "dataclasses", "decimal", "difflib", "enum", "errno"),
        *("fnmatch", "functools", "hashlib", "ipaddress", "itertools", "pathlib", "re", "typing"),
    }
)
"""What the core may import of the standard library, also inside of functions."""
OF_OTHERS: Final = ("cnm_bridge.core", "cni_bridge_spec", "cni_bridge_state", "cni_invoker")
WITHOUT: Final = ("cni_bridge_state.store", "cni_bridge_state.db", "cni_bridge_state.directory")
EFFECTS_OF_PATHS: Final = frozenset(
    {
        *("absolute", "chmod", "cwd", "exists", "expanduser", "glob", "home", "is_dir", "is_file", "is_symlink"),
        *("iterdir", "lstat", "mkdir", "open", "read_bytes", "read_text", "readlink", "rename", "resolve", "rglob"),
        *("rmdir", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text"),
    }
)
LOADED_BY_NONE: Final = {
    *("aiodocker", "aiohttp", "click", "jsonschema", "plyvel", "prometheus_client", "pyroute2", "structlog"),
    *("_posixsubprocess", "asyncio", "fcntl", "logging", "select", "socket", "subprocess"),
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


def imports(tree: ast.AST) -> Iterator[str]:
    """Yield the modules that a module imports, wherever in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_has_no_effects(path: Path) -> None:
    """It imports only what has none, and calls nothing that reads or changes files, or prints."""
    tree = ast.parse(path.read_text())
    for module in imports(tree):
        assert module.partition(".")[0] in OF_PYTHON or module.startswith(OF_OTHERS), module
        assert module not in WITHOUT
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {call.attr for call in called if isinstance(call, ast.Attribute)}.isdisjoint(EFFECTS_OF_PATHS)
    assert {call.id for call in called if isinstance(call, ast.Name)}.isdisjoint({"open", "print", "input"})


def loaded() -> list[str]:
    """Return the modules that a fresh interpreter has loaded after it has imported every module of the core."""
    command = [sys.executable, "-c", IMPORT_ALL]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_core_loads_no_library_with_effects() -> None:
    """Neither netlink, nor HTTP, nor the database, nor the log; it cannot start a program, lock or wait."""
    modules = loaded()
    assert "cnm_bridge.core.planning.plan" in modules
    assert LOADED_BY_NONE.isdisjoint({name.partition(".")[0] for name in modules})


def test_the_core_loads_the_pure_half_of_the_library() -> None:
    """Names that it imports from the package are defined there, too."""
    library = {name for name in loaded() if name.startswith("cni_invoker.")}
    assert "cni_invoker.documents.lists" in library
    assert {name for name in library if not name.startswith(PURE_HALF)} == set()
