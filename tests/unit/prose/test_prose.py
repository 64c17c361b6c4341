# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The prose linter checks comments, docstrings and messages of a module, and nothing else."""

from tests.prose.__main__ import COVERED, ROOT, extract_prose

MODULE = '''"""What it does."""
in_vain = 1  # a comment
raise ValueError(f"no {in_vain} text")
'''


def test_prose_keeps_its_position() -> None:
    """Comments and strings keep their line and column; code becomes blanks."""
    first, second, third = extract_prose(MODULE).splitlines()
    assert first == '"""What it does."""'
    assert second == "             # a comment".rjust(len("in_vain = 1  # a comment"))
    assert third.index("no ") == 'raise ValueError(f"no '.index("no ")
    assert "ValueError" not in third


def test_everything_is_covered() -> None:
    """Each document at the top and each folder with Python code is checked, those of the extras included."""
    documents = {path.name for path in ROOT.glob("*.md")}
    folders = {path.name for path in ROOT.iterdir() if not path.is_symlink() and any(path.glob("*.py"))}
    assert documents | folders | {"docs", "extras"} <= set(COVERED)
