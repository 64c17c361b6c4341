# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A plugin that a test writes with `cni_plugin`, and executes as a runtime does."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cni_bridge_spec import JsonObject, as_object, get_int, get_str, parse_json

__all__ = ["ADDRESS", "CONFIG", "IMPORTS", "Answer", "WrittenPlugin"]

IMPORTS = "from cni_plugin import Call, CallError, ErrorCode, Plugin\n"
ADDRESS = {"ips": [{"address": "10.1.0.9/24"}]}
CONFIG = {"cniVersion": "1.1.0", "name": "blue", "type": "ours"}
CONTAINER = {"CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/c1", "CNI_IFNAME": "eth0"}


@dataclass(frozen=True)
class Answer:
    """What a plugin has answered."""

    status: int
    stdout: str
    stderr: str

    @property
    def document(self) -> JsonObject:
        """The document on standard output."""
        return as_object(parse_json(self.stdout.encode()), "it")

    @property
    def error(self) -> tuple[int, str]:
        """Code and message of the error that it is."""
        assert self.status == 1
        return get_int(self.document, "code"), get_str(self.document, "msg")


class WrittenPlugin:
    """The plugin `ours`.

    Args:
        directory: Where it is written, and where it finds other plugins.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def write(self, program: str) -> Path:
        """Write the plugin and return its file."""
        path = self._directory / "ours"
        path.write_text(f"#!{sys.executable}\n{program}")
        path.chmod(0o755)
        return path

    def __call__(
        self, program: str, command: str, stdin: Mapping[str, object] | bytes = CONFIG, **variables: str | None
    ) -> Answer:
        """Write and execute it for a container; None unsets a variable."""
        environment, given = self.call(command, stdin, **variables)
        ended = subprocess.run([self.write(program)], env=environment, input=given, capture_output=True, check=False)
        return Answer(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    def call(
        self, command: str, stdin: Mapping[str, object] | bytes = CONFIG, **variables: str | None
    ) -> tuple[dict[str, str], bytes]:
        """Environment and standard input of a call."""
        wanted = {**CONTAINER, "CNI_COMMAND": command, "CNI_PATH": str(self._directory), **variables}
        others = {name: value for name, value in os.environ.items() if not name.startswith("CNI_")}
        environment = {**others, **{name: value for name, value in wanted.items() if value is not None}}
        return environment, stdin if isinstance(stdin, bytes) else json.dumps(stdin).encode()
