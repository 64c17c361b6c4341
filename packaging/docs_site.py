# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`make docs`: builds one static folder, build/docs/site, from the Markdown files as they are.

The source is a copy of the repository's Markdown files and of the files that they link to, at the same places, so that
every relative link leads to the same target as on a code hosting site. Zensical checks links and anchors between pages;
what it does not know, links to other files, is checked here, in what was built. So is that no page loads anything from
elsewhere: the site is complete without a network.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "docs"
SITE = BUILD / "site"
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")
_LOADED = frozenset({"icon", "preconnect", "stylesheet"})
"""The relations of links that a browser follows by itself."""


def main() -> int:
    """Build the site; return 1 if a link leads nowhere, or a page loads something from elsewhere."""
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = _list_pages()
    for file in {*pages, *_find_linked(pages)}:
        target = BUILD / "source" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)
    for page in pages:
        _show_diagrams_as_text(BUILD / "source" / page)
    shutil.copy(ROOT / "docs/zensical.toml", BUILD)
    shutil.copy(ROOT / "packaging/iframe-worker.js", BUILD / "source")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    if subprocess.run([*command, "-f", str(BUILD / "zensical.toml")], check=False).returncode != 0:
        return 1
    broken = sorted(_find_broken())
    for link in broken:
        print(link, file=sys.stderr)
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages, {len(broken)} broken links")
    return 1 if broken else 0


def _list_pages() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [file for file in listed.stdout.splitlines() if not file.startswith(("packaging/", ".github/"))]


def _show_diagrams_as_text(page: Path) -> None:
    """Replace the marks of diagrams: the site would load the script that draws them from elsewhere."""
    page.write_text(page.read_text("utf-8").replace("```mermaid\n", "```text\n"), "utf-8")


def _find_linked(pages: list[str]) -> Iterator[str]:
    """Yield the files that pages link to; directories are not copied."""
    for page in pages:
        for target in LINK.findall((ROOT / page).read_text("utf-8")):
            file = (ROOT / page).parent.joinpath(target).resolve()
            if file.is_file() and file.is_relative_to(ROOT):
                yield str(file.relative_to(ROOT))


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.loaded: list[str] = []
        """What a browser loads with the page."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        wanted = {"a": "href", "img": "src", "link": "href", "script": "src"}.get(tag)
        found = [value for name, value in attrs if name == wanted and value]
        self.found += found
        is_loaded = dict(attrs).get("rel") in _LOADED if tag == "link" else tag in {"img", "script"}
        self.loaded += found if is_loaded else ()


def _find_broken() -> Iterator[str]:
    """Yield the relative links of the site that lead to no file, and what pages load from elsewhere."""
    for page in SITE.rglob("*.html"):
        if page.name == "404.html":  # its links begin at the place of publication
            continue
        parser = _Links()
        parser.feed(page.read_text("utf-8"))
        yield from (f"{page.relative_to(SITE)} loads {link}" for link in parser.loaded if urlsplit(link).netloc)
        for link in parser.found:
            url = urlsplit(link)
            if not url.scheme and not url.netloc and url.path and not (page.parent / unquote(url.path)).exists():
                yield f"{page.relative_to(SITE)}: {link}"


if __name__ == "__main__":
    sys.exit(main())
