# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the library logs and raises: sentences for people, and facts for programs."""

import ast
import re
from pathlib import Path

import pytest

import cni_invoker
import cni_invoker.errors
from cni_invoker import PluginFailed
from cni_invoker.messages import _SENTENCES, log_event

ABOUT = {"plugin", "verb", "container_id", "ifname", "outcome", "duration_ms"}
"""What calls pass as `**facts`."""


def test_every_event_has_a_sentence() -> None:
    """Each event that the package logs has a sentence, which uses facts of the event only."""
    events: dict[str, set[str | None]] = {}
    for file in Path(cni_invoker.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "log_event":
                name = node.args[1]
                assert isinstance(name, ast.Constant)
                events.setdefault(str(name.value), set()).update(keyword.arg for keyword in node.keywords)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "log":
                assert file.name == "messages.py", f"{file}:{node.lineno} does not use log_event"
    assert events.keys() == _SENTENCES.keys()
    for event, facts in events.items():
        assert set(re.findall(r"\{(\w+)", _SENTENCES[event])) <= facts | (ABOUT if None in facts else set())


def test_a_message_without_a_formatter(caplog: pytest.LogCaptureFixture) -> None:
    """It is a sentence with all that an operator needs; the record has the facts."""
    facts = {"plugin": "bridge", "file": "/etc/cni/net.d/100%.conflist", "keys": "prevResult"}
    log_event("cni_invoker", "configuration.reserved_keys", **facts)
    (record,) = caplog.records
    assert caplog.messages == [
        "/etc/cni/net.d/100%.conflist: only a runtime may set prevResult; that is not passed on to plugin bridge"
    ]
    assert facts.items() <= record.__dict__.items()
    assert record.__dict__["event"] == "configuration.reserved_keys"


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
