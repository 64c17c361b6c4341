# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Types of option values for click; they refuse invalid values."""

import math
import os
from pathlib import Path

import click

from cnm_bridge.core.errors import Refused
from cnm_bridge.system.process.network_sockets import TcpAddress, parse_address

__all__ = ["Directory", "EngineAddress", "File", "ListenAddress", "MetricsAddress", "Seconds"]


class _NotEmpty(click.Path):
    """A path that is not empty: an empty variable would mean the working directory."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse the empty path."""
        if value == "":
            self.fail("is empty", param, ctx)
        return super().convert(value, param, ctx)


class Directory(_NotEmpty):
    """A directory, which may not exist."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)


class File(_NotEmpty):
    """A file, which may not exist."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)


class MetricsAddress(click.ParamType[str]):
    """An address to serve metrics at, `ADDRESS:PORT`, or nothing."""

    name = "address:port"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is not an IP address with a port."""
        try:
            if value:
                parse_address(value)
        except Refused as exc:
            self.fail(str(exc), param, ctx)
        return value


class Seconds(click.FloatRange):
    """A positive, finite duration in seconds."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse a value that is not finite and positive."""
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a positive number of seconds", param, ctx)
        return seconds


class EngineAddress(click.ParamType[str]):
    """The address of a Docker Engine."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an address that is neither a Unix socket nor TCP."""
        if not value.startswith(("unix:///", "tcp://", "http://", "https://")):
            self.fail(f"{value!r} is neither unix:///path nor tcp://host:port; set --docker-host", param, ctx)
        return value


class ListenAddress(click.ParamType[str]):
    """An address to listen at, `tcp://…` or `https://…`."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse an address that other hosts could use without a certificate."""
        try:
            TcpAddress.parse(value)
        except Refused as exc:
            self.fail(str(exc), param, ctx)
        return value
