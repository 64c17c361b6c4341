# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`make docs`: builds one static folder, build/docs/site, from the Markdown files as they are, and docstrings.

The source is a copy of the repository's Markdown files and of the files that they link to, at the same places, so that
every relative link leads to the same target as on a code hosting site. Zensical checks links and anchors between pages;
what it does not know, links to other files, is checked here, in what was built. So is what must hold of each page
(`site_checks.py`), such as that it loads nothing from elsewhere: the site is complete without a network.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import api_reference
from site_checks import find_mistakes, find_style_mistakes, read_page
from site_words import mark_words

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "docs"
SITE = BUILD / "site"
REFERENCE = "docs/cni-invoker-api.md"  # made here
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")


def main() -> int:
    """Build the site; return 1 if a link leads nowhere, or something else is wrong with a page."""
    shutil.rmtree(BUILD, ignore_errors=True)
    pages = _list_pages()
    for file in {*pages, *_find_linked(pages)}:
        target = BUILD / "source" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, target)
    for page in pages:
        _show_diagrams_as_text(BUILD / "source" / page)
    (BUILD / "source" / REFERENCE).write_text(api_reference.render(), "utf-8")
    shutil.copy(ROOT / "docs/zensical.toml", BUILD)
    for file in ("iframe-worker.js", "site.css"):
        shutil.copy(ROOT / "packaging" / file, BUILD / "source")
    command = [str(Path(sys.executable).with_name("zensical")), "build", "--strict", "--clean"]
    if subprocess.run([*command, "-f", str(BUILD / "zensical.toml")], check=False).returncode != 0:
        return 1
    for built in SITE.rglob("*.html"):
        built.write_text(mark_words(built.read_text("utf-8")), "utf-8")
    broken = sorted(_find_broken())
    for link in broken:
        print(link, file=sys.stderr)
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages, {len(broken)} mistakes")
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


def _find_broken() -> Iterator[str]:
    """Yield the relative links of the site that lead to no file, and whatever else is wrong with a page."""
    for file in SITE.rglob("*.html"):
        if file.name == "404.html":  # its links begin at the place of publication
            continue
        name, page = file.relative_to(SITE), read_page(file.read_text("utf-8"))
        yield from (f"{name}: {mistake}" for mistake in find_mistakes(page))
        for link in page.links:
            url = urlsplit(link)
            if not url.scheme and not url.netloc and url.path and not (file.parent / unquote(url.path)).exists():
                yield f"{name}: {link} does not exist"
    for file in SITE.rglob("*.css"):
        yield from (f"{file.relative_to(SITE)}: {mistake}" for mistake in find_style_mistakes(file.read_text("utf-8")))


if __name__ == "__main__":
    sys.exit(main())
