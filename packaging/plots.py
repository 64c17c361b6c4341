# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`make plots`: draws docs/performance/containers.svg from the measurements beside it, containers.tsv.

The file has a head and rows, separated by tabs: a label, and a value for each column. Each row becomes a group of bars.
"""

from pathlib import Path
from xml.sax.saxutils import escape

DIRECTORY = Path(__file__).parents[1] / "docs" / "performance"
COLOURS = ("#4051b5", "#e08e2b", "#3f9e6d")
ROW, LABEL, BARS, MARGIN = 22, 150, 420, 16


def main() -> None:
    """Draw the picture of containers."""
    head, *rows = _read("containers")
    values = [(row[0], tuple(map(float, row[1:]))) for row in rows]
    _write(
        "containers", _draw("Time of docker run, as a multiple of Docker's own bridge", tuple(head[1:]), values, 1.0)
    )


def _read(name: str) -> list[list[str]]:
    return [line.split("\t") for line in (DIRECTORY / f"{name}.tsv").read_text("utf-8").splitlines()]


def _write(name: str, picture: str) -> None:
    (DIRECTORY / f"{name}.svg").write_text(picture, "utf-8")


def _draw(
    title: str, series: tuple[str, ...], groups: list[tuple[str, tuple[float, ...]]], reference: float | None
) -> str:
    """Return bars as SVG; a line marks the reference, if there is one."""
    largest = max(value for _, values in groups for value in values)
    scale = BARS / max(largest, reference or 0.0)
    top = ROW * (2 if len(series) > 1 else 1) + MARGIN
    height = top + sum(ROW * len(values) + 6 for _, values in groups) + MARGIN
    parts = [_text(MARGIN, ROW - 4, title, "bold")]
    if len(series) > 1:
        for number, name in enumerate(series):
            x = MARGIN + number * (LABEL + BARS) // len(series)
            parts += [_bar(x, ROW + 6, 12, COLOURS[number], 12), _text(x + 18, ROW + 17, name)]
    y = top
    for label, values in groups:
        parts.append(_text(MARGIN, y + 15, label))
        for number, value in enumerate(values):
            parts.append(_bar(LABEL + MARGIN, y + 2, value * scale, COLOURS[number], ROW - 4))
            parts.append(_text(LABEL + MARGIN + value * scale + 6, y + 16, f"{value:g}"))
            y += ROW
        y += 6
    if reference is not None:
        x = LABEL + MARGIN + reference * scale
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{y}" stroke="#888" stroke-dasharray="4 3"/>')
    width = LABEL + BARS + 80
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="13"><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _bar(x: float, y: float, width: float, colour: str, height: float) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-weight="{weight}">{escape(text)}</text>'


if __name__ == "__main__":
    main()
