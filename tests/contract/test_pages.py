# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The commands in the documents can be pasted into a shell; those of the README and the recipes are run by tests."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.pages import README, RECIPES, read_blocks

ROOT = Path(__file__).parents[2]
PAGES = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")))
_FILE = re.compile(r"^cat >(\S+) <<'END'\n(.*?)^END$", re.MULTILINE | re.DOTALL)
SYSTEM = ROOT / "tests" / "system"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_can_be_pasted(page: Path) -> None:
    """No block of commands has a prompt or a gap, and a shell can parse it."""
    assert not read_blocks(page, "console"), "write commands as `sh`, and what they print as `text`"
    for block in read_blocks(page):
        assert find_mistake(block.text) is None


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("# docker ps\n", "a prompt"),
        ("cni-bridge ls\n$ docker ps\n", "a prompt"),
        ("docker run busybox …\n", "a gap"),
        ("docker network create blue   (before Engine 28: --ipam-driver null)\n", "Syntax error"),
        ("cat <<'END'\n# a heading\nEND\n", None),
        ("docker run -d \\\n    busybox\n", None),
    ],
)
def test_mistakes_are_found(text: str, mistake: str | None) -> None:
    """The test above finds what cannot be pasted."""
    found = find_mistake(text)
    assert found is None if mistake is None else mistake in (found or "")


def find_mistake(text: str) -> str | None:
    """Return why a block of commands cannot be pasted; None if it can."""
    commands = re.sub(r"<<'(\w+)'.*?^(\1$|\Z)", "", text, flags=re.MULTILINE | re.DOTALL)
    for pattern, mistake in ((r"^[#$] ", "a prompt"), ("…", "a gap")):
        if re.search(pattern, commands, re.MULTILINE):
            return f"{mistake}: {text}"
    parsed = subprocess.run(("sh", "-n"), input=text, capture_output=True, text=True, check=False)
    return f"{parsed.stderr}: {text}" if parsed.returncode else None


def test_recipes_are_run() -> None:
    """Each recipe with commands is run by a test, or a comment before the commands says why not."""
    source = (SYSTEM / "test_recipes.py").read_text("utf-8")
    run = set(re.findall(r'\brecipe\("([^"]+)"\)', source))
    assert {block.section for block in read_blocks(RECIPES) if block.reason is None} == run


def test_configurations_are_compared(tmp_path: Path) -> None:
    """The command of the page on swarms prints the same line for lists that differ in their form only."""
    (block,) = read_blocks(ROOT / "docs" / "swarm.md", section="Compare the configurations")
    lists = (
        '{"name": "lan", "plugins": [{"type": "bridge", "mtu": 1450}]}',
        '{ "plugins": [\n  {"mtu": 1450, "type": "bridge"}],\n  "name": "lan" }\n',
        '{"name": "lan", "plugins": [{"type": "bridge", "mtu": 1500}]}',
    )
    printed = []
    for number, text in enumerate(lists):
        file = tmp_path / f"{number}.conflist"
        file.write_text(text)
        command = block.text.replace("/etc/cni/net.d/10-lan.conflist", str(file))
        printed.append(subprocess.run(("sh", "-e", "-c", command), capture_output=True, text=True, check=True).stdout)
    same, equal, other = printed
    assert same == equal != other


def test_the_readme_is_run() -> None:
    """All commands from the first network on are run; the others say why not."""
    source = (SYSTEM / "test_readme.py").read_text("utf-8")
    blocks = read_blocks(README)
    run = {block.section for block in blocks if block.reason is None}
    assert all(f'"{section}"' in source for section in run)
    assert run == {"Three commands", "And then"}
    assert "network create" in next(block.text for block in blocks if block.reason is None)
    assert {"make demo\n", "make test\n"} <= {block.text for block in blocks if block.reason is not None}


def test_recipes_write_their_lists() -> None:
    """Each list is in a command that writes it into a file of its name: a page can be pasted from top to bottom."""
    assert not read_blocks(RECIPES, "json")
    files = [found for block in read_blocks(RECIPES) for found in _FILE.findall(block.text)]
    assert len(files) > 5
    assert [path for path, _ in files] == [f"/etc/cni/net.d/{json.loads(text)['name']}.conflist" for _, text in files]


def test_lists_to_begin_with_publish_ports() -> None:
    """The first list that a page shows can be used behind Docker's firewall rules, and with `-p`."""
    first = read_blocks(RECIPES)[0].text
    assert all(f'"type": "{plugin}"' in first for plugin in ("bridge", "firewall", "portmap"))
