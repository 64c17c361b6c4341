# SPDX-License-Identifier: Apache-2.0
"""Makes foreign texts safe for a terminal."""


def printable(text: str, keep: str = "") -> str:
    r"""Return a text without characters that a terminal obeys, or that hide others: `\n` stands for a line break.

    The characters of `keep` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() or one in keep else one.encode("unicode_escape").decode("ascii") for one in text
    )
