# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The import names of our packages, which share a directory with all other installed ones.

See docs/decisions/keep-the-library-apart.md.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported(module: ast.Module) -> Iterator[str]:
    """Yield the top-level names that a module imports, anywhere in it."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def test_no_module_is_imported_by_the_name_of_its_folder() -> None:
    """From the checkout, where `import state` would work, no module does it: elsewhere that is a different package."""
    modules = [file for name in ("cnm_bridge", "cni_invoker", "state", "spec") for file in (ROOT / name).rglob("*.py")]
    loaded = {name for file in modules for name in imported(ast.parse(file.read_text("utf-8")))}
    assert {"cnm_bridge", "cni_invoker", "cni_bridge_state", "cni_bridge_spec"} <= loaded
    assert not {"state", "spec"} & loaded
