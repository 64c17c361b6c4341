# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The documents tell what the program does: an option that is not documented does not exist."""

import re
from pathlib import Path

import click
import pytest

from cnm_bridge.cli.main import serve
from cnm_bridge.planning import options

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text("utf-8")
DAEMON = [option for option in serve.params if isinstance(option, click.Option) and option.opts[0] != "--config"]


@pytest.mark.parametrize("option", DAEMON, ids=lambda option: str(option.opts[0]))
def test_daemon_option_is_documented(option: click.Option) -> None:
    """Each option has a row with its name, its variable and its default."""
    (row,) = re.findall(rf"^\| `{option.opts[0]} .*$", CONFIGURATION, re.MULTILINE)
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    assert variables
    assert variables[0] == f"CNI_BRIDGE_{option.opts[0].removeprefix('--').replace('-', '_').upper()}"
    defaults = option.default if isinstance(option.default, tuple) else (option.default,)
    for text in (*variables, *(f"{d:g}" if isinstance(d, float) else str(d) for d in defaults)):
        assert f"`{text}`" in row


def test_network_options_are_documented() -> None:
    """Each key of `-o` and `driver-opt` has a row, here and in the README."""
    for document in (CONFIGURATION, (ROOT / "README.md").read_text("utf-8")):
        rows = set(re.findall(r"^\| `(cni\.[\w.-]+)", document, re.MULTILINE))
        assert rows == options.OPTIONS | set(options.OPTION_FAMILIES.values())


def test_links_lead_somewhere() -> None:
    """A relative link in a document points to a file that exists, and to a heading of it if it names one."""
    for document in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", document.read_text("utf-8")):
            file = document.parent / target if target else document
            assert file.exists(), f"{document.name} links to {target}"
            assert not anchor or anchor in _anchors(file), f"{document.name} links to {target}#{anchor}"


def _anchors(document: Path) -> set[str]:
    """Return the anchors that a forge makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_make_targets_are_real() -> None:
    """Every `make` command that a document names is a target of the Makefile."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for document in (ROOT / "README.md", ROOT / "CONTRIBUTING.md"):
        for target in re.findall(r"\bmake ([a-z]+)\b(?=[`\s]*(?:#|$|`))", document.read_text("utf-8"), re.MULTILINE):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_logged_events_are_real() -> None:
    """Every event that the documentation names is one that the daemon logs."""
    source = "".join(path.read_text("utf-8") for path in (ROOT / "cnm_bridge").rglob("*.py"))
    logged = set(re.findall(r'"([a-z]+\.[a-z_]+)"', source))
    subjects = {event.partition(".")[0] for event in logged}
    for document in (ROOT / "docs").glob("*.md"):
        named = re.findall(r"`([a-z]+\.[a-z_]+)`", document.read_text("utf-8"))
        for event in named:
            if event.partition(".")[0] in subjects - {"cni", "net"} and not event.endswith((".py", ".json", ".md")):
                assert event in logged, f"{document.name} names {event}"


def test_warnings_are_explained() -> None:
    """Whoever reads a warning finds it in the troubleshooting."""
    text = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
    calls = [
        event
        for path in (ROOT / "cnm_bridge").rglob("*.py")
        for event in re.findall(r'log\.(?:warning|error)\(\s*"([a-z_.]+)"', path.read_text("utf-8"))
    ]
    assert calls
    assert [event for event in calls if event not in text] == []
