# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The site's pages can be read without a network, on a phone, and in the dark; `make docs` checks it."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

GOOD = """
<meta name="viewport" content="width=device-width,initial-scale=1">
<link rel="canonical" href="https://example.org/page"><link rel="stylesheet" href="../site.css">
<input data-md-color-scheme="default"><input data-md-color-scheme="slate">
<a href="https://www.cni.dev">CNI</a><img src="picture.svg"><script src="search.js"></script>
<table><tr><td>1</td></tr></table>
<div class="language-json highlight"><pre><code><span class="p">{}</span></code></pre></div>
<div class="language-text highlight"><pre><code>plain</code></pre></div>
"""


@pytest.fixture(name="checks", scope="module")
def load_module() -> Iterator[ModuleType]:
    """Import the module, which is in no package."""
    spec = importlib.util.spec_from_file_location("site_checks", Path(__file__).parents[2] / "packaging/site_checks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["site_checks"] = module  # for its dataclass
    spec.loader.exec_module(module)
    yield module
    del sys.modules["site_checks"]


def test_a_good_page(checks: ModuleType) -> None:
    """Nothing is wrong with it; what it links to may be elsewhere."""
    page = checks.read_page(GOOD)
    assert list(checks.find_mistakes(page)) == []
    assert page.loaded == ["../site.css", "picture.svg", "search.js"]
    assert "https://www.cni.dev" in page.links


@pytest.mark.parametrize(
    ("old", "new", "mistake"),
    [
        ('src="search.js"', 'src="https://example.org/search.js"', "loads https://example.org/search.js"),
        ('src="picture.svg"', 'src="//example.org/picture.svg"', "loads //example.org/picture.svg"),
        ('href="../site.css"', 'href="http://example.org/site.css"', "loads http://example.org/site.css"),
        ("width=device-width,", "", "no viewport"),
        ('<input data-md-color-scheme="slate">', "", "no choice of light and dark"),
        ("<table>", '<table class="wide">', "1 tables have a class"),
        ('<span class="p">{}</span>', "{}", "JSON is not coloured"),
    ],
)
def test_mistakes_are_found(checks: ModuleType, old: str, new: str, mistake: str) -> None:
    """Each of them is found, and nothing else."""
    (found,) = checks.find_mistakes(checks.read_page(GOOD.replace(old, new)))
    assert mistake in found


@pytest.mark.parametrize(
    ("style", "found"),
    [
        ("@import 'https://example.org/a.css';", ["loads https://example.org/a.css"]),
        ("@font-face { src: url(//example.org/a.woff2) }", ["loads //example.org/a.woff2"]),
        ("a { background: url('data:image/svg+xml,<svg xmlns=\"http://www.w3.org/2000/svg\">') }", []),
    ],
)
def test_style_sheets(checks: ModuleType, style: str, found: list[str]) -> None:
    """Fonts and other style sheets from elsewhere are found."""
    assert list(checks.find_style_mistakes(style)) == found
