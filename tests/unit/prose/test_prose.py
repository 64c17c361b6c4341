# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The prose linter sees comments, docstrings and messages, and nothing else of a module."""

from tests.prose.__main__ import extract_prose

MODULE = '''"""What it does."""
in_vain = 1  # a comment
raise ValueError(f"no {in_vain} text")
'''


def test_prose_keeps_its_place() -> None:
    """Comments and strings stay in their line and column; code becomes blanks."""
    first, second, third = extract_prose(MODULE).splitlines()
    assert first == '"""What it does."""'
    assert second == "             # a comment".rjust(len("in_vain = 1  # a comment"))
    assert third.index("no ") == 'raise ValueError(f"no '.index("no ")
    assert "ValueError" not in third
