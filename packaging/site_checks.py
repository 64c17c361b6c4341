# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What must hold of a page of the site, so that it can be read without a network, on a phone, and in the dark.

Pure, and without the browser that `make screenshots` needs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final
from urllib.parse import urlsplit

__all__ = ["Page", "find_mistakes", "find_style_mistakes", "read_page"]

_LOADED: Final = frozenset({"icon", "preconnect", "preload", "stylesheet"})
"""The relations of links that a browser follows by itself."""
_ADDRESSES: Final = {"a": "href", "img": "src", "link": "href", "script": "src"}
_ELSEWHERE: Final = re.compile(r"(?:@import\s+|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)")
_SCHEMES: Final = frozenset({"default", "slate"})
"""The theme's names of the light and the dark colours."""


@dataclass(slots=True)
class Page:
    """What was found in a page."""

    links: list[str] = field(default_factory=list)
    """All addresses, of other pages and of what is loaded."""
    loaded: list[str] = field(default_factory=list)
    """What a browser loads with the page."""
    viewport: str = ""
    schemes: set[str] = field(default_factory=set)
    classed_tables: int = 0
    """Tables that the theme does not put into a box that can be moved sideways: those with a class of their own."""
    blocks: dict[str, list[bool]] = field(default_factory=dict)
    """For each language of blocks, whether each block is coloured."""


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page = Page()
        self._language: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        classes = given.get("class", "").split()
        self._read_address(tag, given)
        if tag == "meta" and given.get("name") == "viewport":
            self.page.viewport = given.get("content", "")
        elif tag == "table":
            # line numbers and the like have a class, and their own style
            self.page.classed_tables += bool(classes)
        elif tag == "div" and "highlight" in classes:
            self._language = next((one.removeprefix("language-") for one in classes if "language-" in one), "")
            self.page.blocks.setdefault(self._language, []).append(False)
        elif tag == "span" and classes and self._language is not None:
            self.page.blocks[self._language][-1] = True
        if scheme := given.get("data-md-color-scheme"):
            self.page.schemes.add(scheme)

    def handle_endtag(self, tag: str) -> None:
        if tag == "pre":
            self._language = None

    def _read_address(self, tag: str, given: Mapping[str, str]) -> None:
        address = given.get(_ADDRESSES.get(tag, ""), "")
        if not address:
            return
        self.page.links.append(address)
        if tag in {"img", "script"} or (tag == "link" and given.get("rel") in _LOADED):
            self.page.loaded.append(address)


def read_page(html: str) -> Page:
    """Return what is in a page."""
    parser = _Parser()
    parser.feed(html)
    return parser.page


def find_mistakes(page: Page) -> Iterator[str]:
    """Yield what is wrong with a page, in words; its links are not followed."""
    yield from (f"loads {address}" for address in page.loaded if urlsplit(address).netloc)
    if "width=device-width" not in page.viewport.replace(" ", ""):
        yield "a phone would show it small: it has no viewport of the device's width"
    if not page.schemes >= _SCHEMES:
        yield "it has no choice of light and dark colours"
    if page.classed_tables:
        yield f"{page.classed_tables} tables have a class, so a phone could not move them sideways"
    if not all(page.blocks.get("json", ())):
        yield "a block of JSON is not coloured"


def find_style_mistakes(style: str) -> Iterator[str]:
    """Yield what a style sheet loads from elsewhere, such as a font."""
    yield from (f"loads {address}" for address in _ELSEWHERE.findall(style))
