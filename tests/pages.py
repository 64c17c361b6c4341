# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The blocks of the documents, as they are printed.

A block of commands is marked `sh`. A comment before it, `<!-- not run: REASON -->`, says why no test runs it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
README: Final = _ROOT / "README.md"
RECIPES: Final = _ROOT / "docs" / "recipes.md"
CNI_INVOKER: Final = _ROOT / "docs" / "cni-invoker.md"
MANAGER: Final = _ROOT / "docs" / "managing-networks.md"

_BLOCK: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_HEADING: Final = re.compile(r"^## (.*)$", re.MULTILINE)
_PROGRAM: Final = re.compile(r"(?:#!.*\n)?# (\w+\.py)\n")
_REASON: Final = re.compile(r"<!-- not run: (.+) -->\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of a page."""

    section: str
    """The heading of the second level above it; empty before the first."""
    language: str
    """E.g. `sh`; empty without one."""
    text: str
    """Without the indentation of the block."""
    reason: str | None
    """Why no test runs it; None if one does."""


def read_blocks(page: Path, language: str = "sh", *, section: str | None = None) -> Sequence[Block]:
    """Return the blocks of a language on a page, or in one of its sections, in their order."""
    text = page.read_text("utf-8")
    found = [_block(text, match) for match in _BLOCK.finditer(text)]
    return [block for block in found if block.language == language and section in {None, block.section}]


def read_programs(page: Path) -> dict[str, str]:
    """Return the programs of a page by the names that they have in a comment at their beginning, e.g. `attach.py`."""
    found = ((_PROGRAM.match(block.text), block.text) for block in read_blocks(page, "python"))
    return {match[1]: text for match, text in found if match is not None}


def _block(page: str, match: re.Match[str]) -> Block:
    before = page[: match.start()]
    headings = _HEADING.findall(_BLOCK.sub("", before))
    reason = _REASON.search(before)
    lines = match["text"].splitlines()
    return Block(
        section=headings[-1] if headings else "",
        language=match["language"],
        text="".join(f"{line.removeprefix(match['indent'])}\n" for line in lines),
        reason=None if reason is None else reason[1],
    )
