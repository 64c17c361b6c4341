# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The tree of errors."""

import re
from pathlib import Path

import cni_invoker.errors
from cni_invoker import CniError, PluginFailed


def tree(root: type[CniError], depth: int = 0) -> set[tuple[str, int]]:
    """Return the names of an error and its children in `cni_invoker.errors`, with their depth."""
    children = (child for child in root.__subclasses__() if child.__module__.startswith(cni_invoker.errors.__name__))
    return {(root.__name__, depth)}.union(*(tree(child, depth + 1) for child in children))


def test_the_docstring_draws_every_error_class() -> None:
    """The module's docstring draws each error class under its parent."""
    drawn = re.findall(r"^([ │├└─]*)(\w+)", (cni_invoker.errors.__doc__ or "").split("```")[1], re.MULTILINE)
    assert {(name, len(indent) // 4) for indent, name in drawn if name} == tree(CniError)


def test_the_message_of_a_plugin_error_without_details() -> None:
    """Without details the message of the plugin is followed by code, exit status and path."""
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
