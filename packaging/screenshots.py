# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`make screenshots`: pictures of the site, as a desktop and a phone show it, into build/docs/screenshots.

They are for looking at. What a program can see is checked for every page: none is wider than the window, so that only
tables and blocks are moved sideways.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
SITE = ROOT / "build" / "docs" / "site"
TARGET = SITE.parent / "screenshots"
WIDTHS = (1280, 390)
PAGES = ("index", "docs/installing", "docs/configuration", "docs/recipes", "docs/comparison", "docs/performance")
LIMIT_S = 300
BROWSER = ("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
MEASURE = """
<!doctype html><title>wait</title><iframe style="width:{width}px;height:900px;border:0"></iframe><pre></pre>
<script>
const frame = document.querySelector("iframe"), wide = [];
(async () => {{
  for (const page of {pages}) {{
    await new Promise(loaded => {{ frame.onload = loaded; frame.src = page; }});
    await new Promise(drawn => setTimeout(drawn, 200));
    const width = frame.contentDocument.documentElement.scrollWidth;
    if (width > {width}) wide.push(`${{page}} is ${{width}} pixels wide in a window of {width}`);
  }}
  document.querySelector("pre").textContent = JSON.stringify(wide);
}})();
</script>
"""


def main() -> int:
    """Make the pictures; return 1 if a page is too wide."""
    if shutil.which(BROWSER[0]) is None:
        print(f"{BROWSER[0]} is missing; in Debian it is a package of that name", file=sys.stderr)
        return 1
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for page in PAGES:
        for width in WIDTHS:
            for scheme, dark in (("light", False), ("dark", True)):
                picture = TARGET / f"{page.rpartition('/')[2]}-{width}-{scheme}.png"
                # Chromium's PreferredColorScheme: dark is 0 and light is 1
                options = (f"--window-size={width},1600", f"--screenshot={picture}")
                _browse(
                    *options, f"--blink-settings=preferredColorScheme={int(not dark)}", f"file://{SITE}/{page}.html"
                )
    wide = [text for width in WIDTHS for text in _find_wide(width)]
    print("\n".join((*wide, f"{TARGET.relative_to(ROOT)}: {len(list(TARGET.iterdir()))} pictures")))
    return 1 if wide else 0


def _find_wide(width: int) -> Sequence[str]:
    """Return which pages are wider than a window, in words."""
    pages = sorted(str(file.relative_to(SITE)) for file in SITE.rglob("*.html") if file.name != "404.html")
    measure = SITE / "measure.html"
    measure.write_text(MEASURE.format(width=width, pages=json.dumps(pages)), "utf-8")
    try:
        shown = _browse("--allow-file-access-from-files", "--dump-dom", measure.as_uri())
    finally:
        measure.unlink()
    wide: Sequence[str] = json.loads(shown.partition("<pre>")[2].partition("</pre>")[0])
    return wide


def _browse(*options: str) -> str:
    """Let a browser without a network open a page; return what it prints."""
    with tempfile.TemporaryDirectory() as profile:
        command = (*BROWSER, f"--user-data-dir={profile}", "--virtual-time-budget=60000", *options)
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
