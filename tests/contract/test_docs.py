# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The documents describe what the program does: an option that is not documented does not exist."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import cni_invoker
import cni_plugin
import cni_tool
from cni_invoker import advanced, errors, messages
from cnm_bridge.core.options import cni_options
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.commands.serve import serve
from tests.pages import read_blocks

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "docs" / "configuration.md").read_text("utf-8")
TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
DOCUMENTS = (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
EVENT = re.compile(r"[a-z]+\.[a-z_]+")
LOUD = ("warning", "error", "exception", "_warn_once")
"""The methods that log what an administrator should read."""
DAEMON = [option for option in serve.params if isinstance(option, click.Option) and option.opts[0] != "--config"]


@pytest.mark.parametrize("option", DAEMON, ids=lambda option: str(option.opts[0]))
def test_daemon_option_is_documented(option: click.Option) -> None:
    """Each option has a row with its name, its variable and its default."""
    (row,) = re.findall(rf"^\| `{option.opts[0]} .*$", CONFIGURATION, re.MULTILINE)
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    assert variables
    assert variables[0] == f"CNI_BRIDGE_{option.opts[0].removeprefix('--').replace('-', '_').upper()}"
    default = str(Settings().admin_path) if option.name == "admin_socket" else option.default
    defaults = default if isinstance(default, tuple) else (default,)
    for text in (*variables, *(f"{d:g}" if isinstance(d, float) else str(d) for d in defaults if d != "")):
        assert f"`{text}`" in row


def test_network_options_are_documented() -> None:
    """Each key of `-o` and `driver-opt` has a row."""
    rows = set(re.findall(r"^\| `(cni\.[\w.-]+)", CONFIGURATION, re.MULTILINE))
    assert rows == cni_options.OPTIONS | set(cni_options.OPTION_FAMILIES.values())


def test_the_readme_is_short() -> None:
    """What it is, how to try it, and three commands: options and limits have pages of their own."""
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 900


def test_links_have_targets() -> None:
    """A relative link in a document points to an existing file, and to an existing heading if it names one."""
    for document in DOCUMENTS:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", document.read_text("utf-8")):
            file = document.parent / target if target else document
            assert file.exists(), f"{document.name} links to {target}"
            assert not anchor or anchor in _anchors(file), f"{document.name} links to {target}#{anchor}"


def _anchors(document: Path) -> set[str]:
    """Return the anchors that a code hosting site makes of the headings."""
    headings = re.findall(r"^#+ (.*)$", document.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_site_has_every_page() -> None:
    """A page that is not in the navigation is found by search only; decisions are listed by their own page."""
    document = tomllib.loads((ROOT / "docs/zensical.toml").read_text("utf-8"))

    def pages(entry: object) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for item in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
            yield from pages(item)

    listed = set(pages(document["project"]["nav"]))
    assert listed == {
        "README.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "RELEASING.md",
        "SECURITY.md",
        "docs/decisions/README.md",
        "docs/cni-invoker-api.md",  # made from the docstrings
        *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")),
    }


def test_the_reference_of_the_library_has_every_name() -> None:
    """The site has a page that is made from the docstrings."""
    command = (sys.executable, "-c", "import api_reference; print(api_reference.render(), end='')")
    made = subprocess.run(command, cwd=ROOT / "packaging", capture_output=True, text=True, check=True).stdout
    for module in (cni_invoker, advanced, errors, cni_plugin, cni_tool):
        for name in module.__all__:
            assert f"\n### {module.__name__}.{name}\n" in made
    assert "\n#### await CachedRuntime.add(network, attachment)\n" in made


def test_requests_at_the_admin_socket_are_listed() -> None:
    """All that the daemon answers there, and no others."""
    source = "".join(
        (ROOT / f"cnm_bridge/server/admin/{name}.py").read_text("utf-8") for name in ("requests", "metrics", "http")
    )
    found = re.findall(r'Request\((?:verb="(\w+)", )?path="(/[^"]+)"', source)
    requests = {f"{verb or 'GET'} {path}" for verb, path in found}
    assert "POST /v1/compare" in requests
    document = (ROOT / "docs/admin-api.md").read_text("utf-8")
    rows = re.findall(r"^\| (`(?:GET|POST) .*?) \|", document, re.MULTILINE)
    assert {request for row in rows for request in re.findall(r"`([^`]+)`", row)} == requests


MAPS = ("architecture", "docker-protocol", "endpoint-lifecycle", "extending", "processes", "retries", "testing")


@pytest.mark.parametrize("name", MAPS)
def test_named_files_exist(name: str) -> None:
    """Each file and folder that a map of the source names exists, below the root or below `cnm_bridge`."""
    text = (ROOT / "docs" / f"{name}.md").read_text("utf-8")
    named = re.findall(r"`([a-z]\w*(?:/\w+)*(?:\.py|\.json|\.cfg|/))`", text)
    assert named
    assert [path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "cnm_bridge"))] == []


@pytest.mark.parametrize("storey", ["operator", "driver", "system", "core"])
def test_each_room_is_in_the_table(storey: str) -> None:
    """The table of rooms names each subpackage, and each module beside them by its path."""
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    directory = ROOT / "cnm_bridge" / storey
    rooms = {path.parent.name for path in directory.glob("*/__init__.py")}
    rooms |= {f"{storey}/{path.name}" for path in directory.glob("[!_]*.py")}
    assert {room for room in rooms if f"`{room}`" not in text} == set()


def test_make_targets_are_real() -> None:
    """Every `make` command in a document, in a block of commands or between backticks, is a target of the Makefile."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    named = {
        target: document.name
        for document in DOCUMENTS
        for target in (
            *re.findall(r"`make ([\w-]+)", document.read_text("utf-8")),
            *(
                found
                for block in read_blocks(document)
                for found in re.findall(r"^make ([\w-]+)", block.text, re.MULTILINE)
            ),
        )
    }
    assert {"test", "soak", "test-engines"} <= named.keys()  # targets with arguments, or with a hyphen, are found too
    assert {target: named[target] for target in named.keys() - targets} == {}


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_help_is_short() -> None:
    """`make help` has three groups, ten targets at most, and fits a terminal; CONTRIBUTING.md has every target."""
    shown = subprocess.run(("make", "-s", "help"), cwd=ROOT, capture_output=True, text=True, check=True).stdout
    lines = shown.splitlines()
    assert [line for line in lines if line.isalpha()] == ["use", "develop", "release"]
    assert 6 <= len([line for line in lines if line.startswith("  make ")]) <= 10
    assert [line for line in lines if len(line) > 80] == []
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = set(re.findall(r"`make ([\w-]+)", (ROOT / "CONTRIBUTING.md").read_text("utf-8")))
    assert set(phony.split()) - {"help"} <= named


def _events(*methods: str) -> set[str]:
    """Return the events that the daemon's source, or an execution of a plugin, logs by calls of some methods."""
    found: set[str] = set()
    for path in (*(ROOT / "cnm_bridge").rglob("*.py"), *(ROOT / "cni_invoker" / "execution").rglob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(call, ast.Call) and _level_of(call) in methods:
                texts = [word.value for word in call.args if isinstance(word, ast.Constant)]
                found.update(text for text in texts if isinstance(text, str) and EVENT.fullmatch(text))
    return found


def _level_of(call: ast.Call) -> str | None:
    """Return the level of a call that logs, `log.info(…)` or the library's `log_event(__name__, event, …)`."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    if isinstance(call.func, ast.Name) and call.func.id == "log_event" and isinstance(call.args[1], ast.Constant):
        event = call.args[1].value
        return "debug" if event in messages._DEBUG else "error" if event == messages._ERROR else "warning"
    return None


def test_logged_events_are_real() -> None:
    """Every event that a document names is one that the daemon logs."""
    logged = _events("debug", "info", *LOUD)
    subjects = {event.partition(".")[0] for event in logged}
    named = {
        event: document.name
        for document in DOCUMENTS
        if document.name != "CHANGELOG.md"  # it describes former versions
        for event in re.findall(rf"`({EVENT.pattern})`", document.read_text("utf-8"))
        if event.partition(".")[0] in subjects and not event.endswith((".py", ".json", ".md"))
    }
    assert "endpoint.in_use" in named
    assert {event: named[event] for event in named.keys() - logged} == {}


def test_the_table_of_events_has_events_only() -> None:
    """Each name in the first column of the table of events is an event that the daemon logs."""
    _, _, table = TROUBLESHOOTING.partition("\n| event |")
    rows = re.findall(r"^\| ([^|]+) \|", table.partition("\n\n")[0], re.MULTILINE)
    explained = {event.strip("` ") for row in rows for event in row.split(",")} - {"---"}
    assert "rpc.refused" in explained
    assert explained - _events("debug", "info", *LOUD) == set()


def test_warnings_are_explained() -> None:
    """Every warning that the daemon logs is in docs/troubleshooting.md."""
    warnings = _events(*LOUD)
    assert {"endpoint.in_use", "state.damaged", "rpc.bug", "engine.knows_no_network"} <= warnings  # one for each method
    assert sorted(event for event in warnings if f"`{event}`" not in TROUBLESHOOTING) == []
