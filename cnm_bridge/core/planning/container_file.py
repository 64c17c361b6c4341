# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the edits of the files that Docker mounts in a container receive and return; pure."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from cni_bridge_spec import JsonObject


class ContainerFile(StrEnum):
    """A file below `/etc` that Docker mounts in a container."""

    HOSTS = "hosts"
    RESOLV_CONF = "resolv.conf"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    """What dockerd has written about a container, beside the files that it mounts.

    Attributes:
        config: `config.v2.json`, None if it cannot be read.
        host_config: `hostconfig.json`, None if it cannot be read.
    """

    config: JsonObject | None = None
    host_config: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEdit:
    """What becomes of a file.

    Attributes:
        content: The new content, None if it stays as it is.
        obstacle: Why it stays although something should be changed, "" if nothing should.
    """

    content: str | None = None
    obstacle: str = ""


Edit: TypeAlias = Callable[[str, ContainerRecord], FileEdit]
"""Receives the content of a file, and what dockerd has written about its container."""
