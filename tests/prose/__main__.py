# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Run proselint with our list of phrases over documents and scripts, and over the comments and strings of the code.

Comments and strings keep their line and column: the rest of a module becomes blanks.
"""

import sys
import tokenize
from pathlib import Path
from typing import Final

from proselint.registry import CheckRegistry
from proselint.registry.checks import Check, CheckFlags
from proselint.registry.checks.types import PreferredForms
from proselint.tools import LintFile

from tests.prose.phrases import PREFERRED

ROOT: Final = Path(__file__).parents[2]

COVERED: Final[tuple[str, ...]] = (
    ".ci",
    ".github",
    ".pre-commit-config.yaml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Makefile",
    "README.md",
    "RELEASING.md",
    "SECURITY.md",
    "cni_invoker",
    "cnm_bridge",
    "conftest.py",
    "demo",
    "docker",
    "docs",
    "extras",
    "packaging",
    "pyproject.toml",
    "setup.cfg",
    "spec",
    "state",
    "tests",
)
"""The whole tree, without what tools make."""

SUFFIXES: Final = frozenset({"", ".cfg", ".md", ".py", ".service", ".sh", ".socket", ".toml", ".yaml", ".yml"})
"""The files of these folders that people read; a script has no suffix."""

EXEMPT: Final = frozenset({ROOT / "tests" / "prose" / "phrases.py"})
"""The list of the phrases has all of them."""

CHECK: Final = Check(
    check_type=PreferredForms(items={key.replace(" ", r"[\s#]+"): value for key, value in PREFERRED.items()}),
    path="plain_english",
    message="write '{}' instead of '{}'",
    flags=CheckFlags(allow_quotes=True),
)


def extract_prose(source: str) -> str:
    """Return a Python module with blanks instead of everything except comments and strings."""
    kinds = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
    lines = source.splitlines(keepends=True)
    prose = [[" " if character != "\n" else "\n" for character in line] for line in lines]
    for token in tokenize.generate_tokens(iter(lines).__next__):
        if token.type in kinds:
            for row in range(token.start[0], token.end[0] + 1):
                start = token.start[1] if row == token.start[0] else 0
                end = token.end[1] if row == token.end[0] else len(lines[row - 1])
                prose[row - 1][start:end] = lines[row - 1][start:end]
    return "".join("".join(line) for line in prose)


def _files(path: Path) -> list[Path]:
    """Return a file, or the files that people read of a folder."""
    if path.is_file():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file() and file.suffix in SUFFIXES and file not in EXEMPT)


def main(names: tuple[str, ...]) -> int:
    """Report each hit as `file:line:column`, and return the number of hits."""
    CheckRegistry().register(CHECK)
    hits = 0
    for name in names:
        path = ROOT / name
        for file in _files(path):
            text = file.read_text("utf-8")
            prose = extract_prose(text) if file.suffix == ".py" else text
            for hit in LintFile(str(file), prose).lint({"max_errors": 1000, "checks": {CHECK.path: True}}):
                line, column = hit.pos
                print(f"{file.relative_to(ROOT)}:{line}:{column}: {hit.check_result.message}")  # noqa: T201
                hits += 1
    return hits


if __name__ == "__main__":
    sys.exit(1 if main(tuple(sys.argv[1:]) or COVERED) else 0)
