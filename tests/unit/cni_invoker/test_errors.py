# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tree of errors."""

import re
from pathlib import Path

import cni_invoker.errors
from cni_invoker import BadConfiguration, CniError, ConfigurationNotFound, PluginFailed


def tree(root: type[CniError], depth: int = 0) -> set[tuple[str, int]]:
    """Return the names of an error and its children, with their depth."""
    return {(root.__name__, depth)}.union(*(tree(child, depth + 1) for child in root.__subclasses__()))


def test_the_drawing_is_the_tree() -> None:
    """The module's docstring draws the errors there are, each under its parent."""
    drawn = re.findall(r"^([ │├└─]*)(\w+)", (cni_invoker.errors.__doc__ or "").split("```")[1], re.MULTILINE)
    assert {(name, len(indent) // 4) for indent, name in drawn if name} == tree(CniError)


def test_details_may_be_missing() -> None:
    """A plugin's message stands alone where it gave no details."""
    error = PluginFailed(
        plugin="bridge",
        verb="DEL",
        path=Path("/p/bridge"),
        code=7,
        msg="no master",
        exit_status=1,
        signal=None,
        duration_s=0.25,
    )
    assert str(error) == (
        'plugin type="bridge" failed (delete): no master (code 7, exit status 1 after 0.250 s, /p/bridge)'
    )


def test_without_any_directory() -> None:
    """Nothing searched is said as such, and a document without a file is called what it is."""
    assert "no directory at all" in str(ConfigurationNotFound("a", known=(), directories=(), problems=()))
    assert str(BadConfiguration("bad", file=None)) == "network configuration: bad"
