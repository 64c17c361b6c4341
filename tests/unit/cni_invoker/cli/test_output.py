# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How the command prints the package's warnings."""

import re
from pathlib import Path

import cni_invoker
from cni_invoker.cli.output import _WORDS

_WARNING = re.compile(r'log\.warning\(\s*"([a-z_.]+)",\s*extra=\{([^\n]*)\}')


def test_every_warning_has_a_sentence() -> None:
    """Each warning that the package logs has a sentence, which uses fields of the event only."""
    events = {
        event: set(re.findall(r'"(\w+)":', extra))
        for file in Path(cni_invoker.__file__).parent.rglob("*.py")
        for event, extra in _WARNING.findall(file.read_text("utf-8"))
    }
    assert len(events) >= 6
    assert events.keys() == _WORDS.keys()
    for event, fields in events.items():
        assert set(re.findall(r"\{(\w+)\}", _WORDS[event])) <= fields
