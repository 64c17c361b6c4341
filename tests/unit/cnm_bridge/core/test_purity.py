# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The core decides without effects: its modules import nothing that has any, and nor does what they import."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
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
OF_OTHERS: Final = frozenset(
    {"cni_bridge_spec", "cni_bridge_state", "cni_bridge_state.documents", "cni_invoker", "cni_invoker.errors"}
)
"""Modules of ours whose names it may import."""
BELOW: Final = ("cnm_bridge.core.", "cni_invoker.documents.")
"""Packages of which it may import every module."""
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
    """Yield the modules that a module imports, wherever in it, also those behind names of our packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = str(node.module)
            yield module
            if module in {"cni_bridge_state", "cni_invoker"}:
                yield from (_home(module, name.name) for name in node.names)


def _home(package: str, name: str) -> str:
    """Return the module that a name of a package is; of the library, which loads them late, the one that has it."""
    if find_spec(f"{package}.{name}") is not None:
        return f"{package}.{name}"
    home = str(getattr(getattr(import_module(package), name), "__module__", package))
    return home if home.startswith("cni_invoker.") else package


def is_allowed(module: str) -> bool:
    """Return whether the core may import a module."""
    return module.partition(".")[0] in OF_PYTHON or module in OF_OTHERS or module.startswith(BELOW)


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda path: str(path.relative_to(CORE)))
def test_a_module_has_no_effects(path: Path) -> None:
    """It imports only what has none, and calls nothing that reads or changes files, or prints."""
    tree = ast.parse(path.read_text())
    for module in imports(tree):
        assert is_allowed(module), module
    called = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {call.attr for call in called if isinstance(call, ast.Attribute)}.isdisjoint(EFFECTS_OF_PATHS)
    assert {call.id for call in called if isinstance(call, ast.Name)}.isdisjoint({"open", "print", "input"})


@pytest.mark.parametrize(
    ("line", "is_pure"),
    [
        ("from cni_invoker.documents.checks import check_name", True),
        ("from cni_bridge_state import EndpointRecord", True),
        ("from cni_bridge_state import EndpointRecord, store", False),
        ("from cni_bridge_state.store import Store", False),
        ("from cni_invoker.runtime import Runtime", False),
        ("from cni_invoker import Result, Runtime", False),
        ("import cni_invoker.runtime", False),
        ("from cni_invoker import execution", False),
    ],
)
def test_imports_inside_of_functions_count(line: str, *, is_pure: bool) -> None:
    """Those of modules with effects are found in each way to write them."""
    assert all(map(is_allowed, imports(ast.parse(f"def late():\n    {line}")))) is is_pure


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
