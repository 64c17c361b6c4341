# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How Docker is asked for a network whose addresses the plugins choose. Pure."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cni_bridge_spec import JsonObject
from cnm_bridge.core.engine_facts import EngineRelease


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerRequest:
    """A request for a Docker network.

    Attributes:
        name: Its name.
        driver: The name of this driver in Docker.
        options: Its options.
        internal: Whether it has no gateway.
        release: The engine's release, which decides how Docker's own addresses are switched off.
    """

    name: str
    driver: str
    options: Mapping[str, str] = field(hash=False)
    internal: bool
    release: EngineRelease

    @property
    def command(self) -> str:
        """The docker command, for a shell."""
        flags = ["--ipv4=false"] if self.release.makes_sandbox_first else ["--ipam-driver", "null"]
        flags += ["--internal"] if self.internal else []
        options = [part for key, value in self.options.items() for part in ("-o", f"{key}={value}")]
        return shlex.join(["docker", "network", "create", "-d", self.driver, *flags, *options, self.name])

    @property
    def body(self) -> JsonObject:
        """The body of `POST /networks/create`."""
        addressing: JsonObject = (
            {"EnableIPv4": False} if self.release.makes_sandbox_first else {"IPAM": {"Driver": "null"}}
        )
        return {
            "Name": self.name,
            "Driver": self.driver,
            "Options": dict(self.options),
            "Internal": self.internal,
            "CheckDuplicate": True,
            **addressing,
        }


def show_file(path: Path, text: str) -> str:
    """Return the commands that write a text with whole lines into a file, for a shell."""
    return f"mkdir -p {shlex.quote(str(path.parent))}\ncat >{shlex.quote(str(path))} <<'END'\n{text}END"
