# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Says where a browser may break the words of code. Pure.

A browser breaks a line after a hyphen, so that a narrow window shows `--` at the end of a line and `ipam-driver` on the
next. It does not break `CNI_BRIDGE_SOCKET`, so that a table becomes wider than the window. No style says otherwise for
single words, so they get elements.
"""

import re
from typing import Final

__all__ = ["mark_words"]

_CODE: Final = re.compile(r"<code>.*?</code>", re.DOTALL)
_CELL: Final = re.compile(r"<td>.*?</td>", re.DOTALL)
_TEXT: Final = re.compile(r"(?<=>)[^<]+")
_WORD: Final = re.compile(r"(?<!\S)[^\s&-]{0,20}-[^\s&]{1,20}(?!\S)")
"""With a hyphen. Longer ones may be wider than a phone."""
_BREAK: Final = re.compile(r"(?<=\w[_/])(?=\w)")
"""In names of variables and files."""


def mark_words(html: str) -> str:
    """Return a page in which no short word of code is broken at a hyphen, and long ones in tables may be broken."""
    kept = _CODE.sub(lambda code: _in_text(_WORD, r'<span class="word">\g<0></span>', code[0]), html)
    return _CELL.sub(lambda cell: _CODE.sub(lambda code: _in_text(_BREAK, "<wbr>", code[0]), cell[0]), kept)


def _in_text(pattern: re.Pattern[str], new: str, html: str) -> str:
    return _TEXT.sub(lambda text: pattern.sub(new, text[0]), html)
