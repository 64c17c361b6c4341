# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A runtime under test, as a command."""

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LIMIT_S: Final = 120.0
_OWN: Final = ("CNI_", "CAP_ARGS", "NETCONFPATH")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has answered."""

    ok: bool
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Driver:
    """The command of a runtime.

    Attributes:
        command: Its words. `{verb}`, `{network}` and `{netns}` in them are replaced; without any of these they are
            appended. `{cache}` is the directory of its records.
    """

    command: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "Driver":
        """Return the driver of a command line."""
        words = tuple(shlex.split(text))
        has_verb = any("{verb}" in word for word in words)
        return cls(words if has_verb else (*words, "{verb}", "{network}", "{netns}"))

    def run(self, verb: str, network: str, netns: Path, cache: Path, variables: Mapping[str, str]) -> Answer:
        """Run a command of the runtime until it ends."""
        facts = {"verb": verb, "network": network, "netns": str(netns), "cache": str(cache)}
        words = list(self.command)
        for name, value in facts.items():
            words = [word.replace(f"{{{name}}}", value) for word in words]
        others = {key: value for key, value in os.environ.items() if not key.startswith(_OWN)}
        ended = subprocess.run(
            words, env={**others, **variables}, capture_output=True, timeout=_LIMIT_S, check=False, errors="replace"
        )
        return Answer(ended.returncode == 0, ended.stdout, ended.stderr)
