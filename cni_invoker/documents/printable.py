# SPDX-License-Identifier: Apache-2.0
"""Makes foreign texts safe for a terminal."""


def printable(text: str, keep: str = "") -> str:
    r"""Return a text without characters that a terminal obeys, or that hide others: `\n` stands for a line break.

    Args:
        text: The text, such as a name or a message of a plugin.
        keep: Characters that stay as they are, such as line breaks.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escape(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
