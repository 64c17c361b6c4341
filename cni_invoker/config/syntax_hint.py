# SPDX-License-Identifier: Apache-2.0
"""What people save as a configuration that is not JSON, and what to do about it; pure.

Parsers only say where they stopped, such as "Expecting value" at the first character.
"""

import re
from collections.abc import Mapping
from typing import Final

_EMPTY: Final = "the file is empty"
_BYTE_ORDER_MARKS: Final[Mapping[bytes, str]] = {
    b"\xef\xbb\xbf": "it begins with a byte order mark; save it as UTF-8 without one",
    b"\xff\xfe": "it is UTF-16; save it as UTF-8",
    b"\xfe\xff": "it is UTF-16; save it as UTF-8",
}
_TEXT: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"?')
_COMMENT: Final = re.compile(rb"^\s*#|//|/\*", re.MULTILINE)
_YAML: Final = re.compile(rb"^\s*(?:---|-? ?[A-Za-z][\w.-]*:(?:\s|$))", re.MULTILINE)
_TRAILING_COMMA: Final = re.compile(rb",\s*[]}]")
_QUOTES: Final = (b"'", b"`", "“".encode(), "‘".encode())


def find_syntax_hint(data: bytes) -> str | None:
    """Return what a text that is not JSON seems to be, and what to do; None if it shows no sign of anything known."""
    text = data.strip()
    if not text:
        return _EMPTY
    marked = next((hint for mark, hint in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), None)
    if marked is not None:
        return marked
    bare = _TEXT.sub(b'""', text)
    if text.startswith(_QUOTES):
        return "the whole file is in quotes; remove them"
    if _COMMENT.search(bare):
        return "JSON has no comments; remove them"
    if not text.startswith((b"{", b"[")) and _YAML.search(text):
        return "it looks like YAML; write it as JSON"
    if _TRAILING_COMMA.search(bare):
        return "remove the comma after the last item"
    return None
