# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Runs the docker command."""

import subprocess
from dataclasses import dataclass
from typing import Final

from cnm_bridge.core.errors import Refused
from cnm_bridge.system.commands import CompletedCommand

_LIMIT_S: Final = 120.0
"""Longer than a plugin may take."""


@dataclass(frozen=True, slots=True)
class DockerCommand:
    """The docker command for one engine.

    A command that has begun runs to its end, also after Ctrl-C: an interrupted `docker create` could make its container
    after everything was removed.

    Attributes:
        host: The address of the engine.
    """

    host: str

    def run(self, *arguments: str, content: bytes | None = None) -> CompletedCommand:
        """Run a command; its output is stripped, and its errors are on one line.

        Raises:
            Refused: docker is not installed, or did not end in time.
        """
        try:
            process = subprocess.Popen(
                ("docker", "--host", self.host, *arguments),  # noqa: S607 - the operator's own docker
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C does not reach it
            )
        except OSError as exc:
            raise Refused(f"cannot run docker: {exc.strerror}") from exc
        with process:
            try:
                output, errors = process.communicate(content, timeout=_LIMIT_S)
            except KeyboardInterrupt:
                process.communicate(timeout=_LIMIT_S)
                raise
            except subprocess.TimeoutExpired as exc:
                process.kill()
                raise Refused(f"docker {arguments[0]} did not end within {_LIMIT_S:g} s") from exc
        text = " ".join(errors.decode("utf-8", "replace").split())
        return CompletedCommand(
            succeeded=process.returncode == 0,
            output=output.decode("utf-8", "replace").strip(),
            error=text or f"exit status {process.returncode}",
        )
