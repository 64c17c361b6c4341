# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The programs in two pages of docs and in the READMEs of three distributions: typed as strictly as the library.

`tests/kernel/test_cni_invoker_processes.py` and `extras/cni_tool/tests/kernel/test_command.py` run them.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pages import CNI_INVOKER, MANAGER, read_blocks, read_programs

ROOT = Path(__file__).parents[3]
README = ROOT / "packaging/cni-invoker/README.md"
OTHERS = (ROOT / "extras/cni_plugin/README.md", ROOT / "extras/cni_tool/README.md")


def test_the_plugin_in_process() -> None:
    """The program needs neither root nor an executable; it prints the versions of its plugin."""
    program = read_programs(CNI_INVOKER)["in_process.py"]
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.endswith("'1.0.0', '1.1.0')\n")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed for this Python")
def test_types(tmp_path: Path) -> None:
    """Each of them passes `mypy --strict`, which looks for problems of the library's own types."""
    programs = read_programs(CNI_INVOKER) | read_programs(MANAGER)
    blocks = (one for page in (README, *OTHERS) for one in read_blocks(page, "python"))
    programs |= {f"readme{index}.py": one.text for index, one in enumerate(blocks)}
    for name, text in programs.items():
        (tmp_path / name).write_text(text, "utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), *sorted(programs)]
    places = (README.parent, *(page.parent / "src" for page in OTHERS))
    found = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, places))}  # an editable installation is not found
    checked = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
    assert f"no issues found in {len(programs)} source files" in checked.stdout


def test_the_readme_names_what_is_shipped() -> None:
    """It is all that PyPI shows, so it names no file of the project."""
    assert "docs/" not in README.read_text("utf-8")
