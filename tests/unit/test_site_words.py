# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The site breaks words of code where they can be read then."""

import importlib.util
from pathlib import Path

import pytest

_SPEC = importlib.util.spec_from_file_location("site_words", Path(__file__).parents[2] / "packaging/site_words.py")
assert _SPEC is not None
assert _SPEC.loader is not None
MODULE = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(MODULE)


@pytest.mark.parametrize(
    ("html", "kept"),
    [
        ("<code>docker --ip6 x</code>", '<code>docker <span class="word">--ip6</span> x</code>'),
        (
            '<code>-o<span class="w"> </span>cni-bridge\n</code>',
            '<code><span class="word">-o</span><span class="w"> </span><span class="word">cni-bridge</span>\n</code>',
        ),
        ("<p>a-b</p><code>c</code>", "<p>a-b</p><code>c</code>"),
        ('<code><a href="a-b.html">c</a></code>', '<code><a href="a-b.html">c</a></code>'),
        ("<code>a-b&lt;c</code>", "<code>a-b&lt;c</code>"),
        (f"<code>--{'x' * 30}</code>", f"<code>--{'x' * 30}</code>"),
    ],
)
def test_words_of_code_are_kept_whole(html: str, kept: str) -> None:
    """Text outside of code, attributes and entities stay as they are, and so do too wide words."""
    assert MODULE.mark_words(html) == kept


def test_long_words_in_tables_may_be_broken() -> None:
    """Names of variables and files, only in code and only in cells."""
    word = '<span class="word">--x</span>'
    html = "<p><code>A_B --x</code></p><td>a/b <code>A_B /a/b --x</code></td>"
    marked = f"<p><code>A_B {word}</code></p><td>a/b <code>A_<wbr>B /a/<wbr>b {word}</code></td>"
    assert MODULE.mark_words(html) == marked
