# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a value of an option may be; everything else is refused where it was given."""

import math
import os
from pathlib import Path

import click

__all__ = ["Directory", "EngineAddress", "File", "Seconds"]


class _NotEmpty(click.Path):
    """A path; an empty text, as from a variable that was not set, would stand for the working directory."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Refuse the empty path."""
        if value == "":
            self.fail("is empty", param, ctx)
        return super().convert(value, param, ctx)


class Directory(_NotEmpty):
    """A directory, which need not exist."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)


class File(_NotEmpty):
    """A file, which need not exist."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)


class Seconds(click.FloatRange):
    """A time that ends."""

    name = "seconds"

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Refuse what is no finite number above zero."""
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value} is not a time", param, ctx)
        return seconds


class EngineAddress(click.ParamType[str]):
    """Where a Docker Engine listens."""

    name = "url"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what cannot be asked."""
        if not value.startswith(("unix:///", "tcp://", "http://", "https://")):
            self.fail(f"{value!r} is neither unix:///path nor tcp://host:port; set --docker-host", param, ctx)
        return value
