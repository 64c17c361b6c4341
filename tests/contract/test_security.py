# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Promises of docs/security.md that no other test shows, and that the tests which it names exist."""

import ast
import re
from pathlib import Path

from cni_bridge_state.store import Store

ROOT = Path(__file__).parents[2]
SHELLS = {"create_subprocess_shell", "system", "popen", "getoutput", "getstatusoutput"}


def test_each_promise_names_a_test() -> None:
    """A row of the last table has tests; a name that begins with `::` is in the file before it."""
    table = (ROOT / "docs/security.md").read_text("utf-8").partition("## Which test shows it")[2]
    rows = [line for line in table.splitlines() if line.startswith("| ")][2:]
    assert len(rows) > 10
    for row in rows:
        file = ""
        named = re.findall(r"`((?:(?:extras/\w+/)?tests/[\w/]+\.py)?(?:::\w+)?)`", row)
        assert any(named), row
        for name in filter(None, named):
            path, _, function = name.partition("::")
            file = path or file
            source = (ROOT / file).read_text("utf-8")
            assert not function or re.search(rf"^(async )?def {function}\(", source, re.MULTILINE), name


def test_the_daemon_never_executes_a_shell() -> None:
    """Neither the daemon nor the library has a call that starts one."""
    found = []
    for path in (*(ROOT / "cnm_bridge").rglob("*.py"), *(ROOT / "cni_invoker").rglob("*.py")):
        source = path.read_text("utf-8")
        assert "/bin/sh" not in source
        assert "/bin/bash" not in source
        for call in ast.walk(ast.parse(source)):
            if isinstance(call, ast.Call):
                name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
                uses_shell = any(keyword.arg == "shell" for keyword in call.keywords)
                if name in SHELLS or uses_shell:
                    found.append(f"{path}:{call.lineno}")
    assert found == []


def test_the_state_directory_is_private(tmp_path: Path) -> None:
    """Records have copies of configurations, which may have credentials."""
    Store.open(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_commands_print_in_one_place() -> None:
    """A name may have control characters, which that place escapes."""
    printing = [
        str(file.relative_to(ROOT))
        for package in ("cnm_bridge/operator", "cni_invoker", "extras/cni_tool/src")
        for file in (ROOT / package).rglob("*.py")
        if re.search(r"click\.s?echo\(|\bprint\(|sys\.stdout\.write\(", file.read_text("utf-8"))
    ]
    assert sorted(printing) == [
        "cnm_bridge/operator/cli/echo.py",
        "cnm_bridge/operator/cli/output.py",  # tables with colours
        "extras/cni_tool/src/cni_tool/forms.py",
    ]
