# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The import names of our packages, which share a directory with all other installed ones.

See docs/decisions/keep-the-library-apart.md.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

IMPORT_ALL = """
import importlib, pkgutil, sys
for name in ("cnm_bridge", "cni_invoker", "cni_bridge_state", "cni_bridge_spec"):
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_no_module_is_imported_by_the_name_of_its_folder() -> None:
    """From the checkout, where `import state` would work, no module does it: elsewhere that is a different package."""
    command = (sys.executable, "-c", IMPORT_ALL)
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {"cnm_bridge", "cni_invoker", "cni_bridge_state", "cni_bridge_spec"} <= {*loaded}
    assert not {"state", "spec"} & {*loaded}
