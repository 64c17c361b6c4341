# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Types of option values for click; they refuse invalid values."""

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import click

from cnm_bridge.core.errors import Refused


class _NotEmpty(click.Path):
    """A path that is not empty: an empty variable would mean the working directory."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse the empty path."""
        if value == "":
            self.fail("is empty", param, ctx)
        return super().convert(value, param, ctx)


DIRECTORY: Final = _NotEmpty(file_okay=False, readable=False, path_type=Path)
"""A directory, which may not exist, or be readable by root only; that is an error when it is read."""
FILE: Final = _NotEmpty(dir_okay=False, readable=False, path_type=Path)
"""A file, likewise."""


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


SECONDS: Final = Seconds()


class Checked(click.ParamType[str]):
    """A text that a function checks.

    Args:
        name: What it is, for the help.
        check: Raises `Refused` if it is not.
    """

    def __init__(self, name: str, check: Callable[[str], object]) -> None:
        self.name = name
        self._check = check

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text."""
        try:
            self._check(value)
        except Refused as exc:
            self.fail(str(exc), param, ctx)
        return value


def check_engine_address(value: str) -> None:
    """Refuse the address of an engine that is neither a Unix socket nor TCP, or has a port that is none."""
    if not value.startswith(("unix:///", "tcp://", "http://", "https://")):
        raise Refused(f"{value!r} is neither unix:///path nor tcp://host:port; set --docker-host")
    try:
        urlsplit(value).port  # noqa: B018 - it is checked when it is read
    except ValueError as exc:
        raise Refused(f"{value!r}: {exc}; set --docker-host") from exc


def check_metrics_address(value: str) -> None:
    """Refuse an address for metrics that is not an IP address with a port; it may be empty."""
    if value:
        from cnm_bridge.system.sockets import parse_address  # noqa: PLC0415 - most daemons serve none

        parse_address(value)
