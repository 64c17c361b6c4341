# SPDX-License-Identifier: Apache-2.0
"""Texts from outside, such as names and messages of plugins, as a terminal may receive them; pure."""


def printable(text: str, keep: str = "") -> str:
    r"""Return a text without characters that a terminal obeys, or that hide others: `\n` stands for a line break.

    Args:
        text: The text.
        keep: Characters that stay as they are, such as line breaks.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _escape(one) for one in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
