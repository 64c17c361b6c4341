# SPDX-License-Identifier: Apache-2.0
"""What people save as a configuration that is not JSON, and what to do about it; pure.

Parsers only say where they stopped, such as "Expecting value" at the first character.
"""

import re
from typing import Final

_TEXT: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"?')
_SIGNS: Final = tuple(
    (re.compile(sign, re.MULTILINE), hint)
    for sign, hint in (
        (rb"\A\s*\Z", "the file is empty"),
        (rb"\A\xef\xbb\xbf", "it begins with a byte order mark; save it as UTF-8 without one"),
        (rb"\A(?:\xff\xfe|\xfe\xff)", "it is UTF-16; save it as UTF-8"),
        (rb"\A\s*(?:['`]|\xe2\x80[\x98\x9c])", "the whole file is in quotes; remove them"),  # also typographic ones
        (
            rb"\A\s*(?![\s{\[])(?:.|\n)*?^[ \t]*(?:---|(?:- )?[A-Za-z][\w.-]*:(?:\s|$))",
            "it looks like YAML; write it as JSON",
        ),
        (rb"^[ \t]*#|//|/\*", "JSON has no comments; remove them"),
        (rb",\s*[]}]", "remove the comma after the last item"),
    )
)
"""What a text that is not JSON has, its texts in quotes left out, and what to say about it; the first one counts."""


def find_syntax_hint(data: bytes) -> str | None:
    """Return what a text that is not JSON seems to be, and what to do; None if it shows no sign of anything known."""
    bare = _TEXT.sub(b'""', data)
    return next((hint for sign, hint in _SIGNS if sign.search(bare)), None)
