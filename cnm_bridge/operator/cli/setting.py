# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A setting of the daemon: its name, its sources, the type of its value, and the file that may have it.

The configuration file is TOML, with one key per option of `cni-bridge serve`, spelled like the option.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import click

from cni_invoker.documents.jsontypes import show
from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.settings import Settings, option_name


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


TomlValue = str | int | float | bool | list[str]
_DEFAULTS: Final = Settings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    Attributes:
        name: Its name without dashes, which is also its key in the configuration file.
        parameter: The field of `Settings`, and the parameter of the command's function.
        type: The type of its value.
        default: Its default.
        help: Its help text.
        multiple: Whether it may be given several times.
        fallback: An environment variable that is used if the option's own is not set.
    """

    name: str
    parameter: str
    type: click.ParamType[Any]
    default: object
    help: str
    multiple: bool = False
    fallback: str | None = None

    @classmethod
    def of(
        cls, parameter: str, text: str, *, kind: click.ParamType[Any] | None = None, fallback: str | None = None
    ) -> Self:
        """Return the option for a field of `Settings`.

        Args:
            parameter: The field.
            text: Its help text.
            kind: The type of its value; None to infer it from name and default of the field.
            fallback: As the attribute.
        """
        name, default = option_name(parameter), getattr(_DEFAULTS, parameter)
        return cls(
            name=name,
            parameter=parameter,
            type=_infer_type(name, default) if kind is None else kind,
            default=default.value if isinstance(default, Enum) else default,
            help=text,
            multiple=isinstance(default, tuple),
            fallback=fallback,
        )

    def describe_mismatch(self, value: object) -> str:
        """Return what a value from a document should be, e.g. `a text`; "" if it has that type."""
        if self.multiple:
            is_right = isinstance(value, list) and value != [] and all(isinstance(item, str) for item in value)
            return "" if is_right else "a list of texts"
        if self.type is click.BOOL:
            return "" if isinstance(value, bool) else "true or false"
        if self.type is SECONDS:
            return "" if isinstance(value, int | float) and not isinstance(value, bool) else "a number"
        return "" if isinstance(value, str) else "a text"

    @property
    def variables(self) -> Sequence[str]:
        """Its environment variables; the first that is set wins."""
        own = f"CNI_BRIDGE_{self.name.replace('-', '_').upper()}"
        return [own, self.fallback] if self.fallback else [own]


def _infer_type(name: str, default: object) -> click.ParamType[Any]:
    match default:
        case Enum():
            return click.Choice(type(default), case_sensitive=False)
        case bool():
            return click.BOOL
        case float():
            return SECONDS
        case str():
            return click.STRING
        case _ if name.endswith("-dir"):
            return DIRECTORY
        case Path() | None:
            return FILE
        case _:
            raise TypeError(f"setting {name} needs a type")


def read_config_file(path: Path) -> Mapping[str, TomlValue]:
    """Return the values of a configuration file by option, e.g. `{"cni-conf-dir": ["/etc/cni/net.d"]}`; unchecked.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not TOML; the text names line and column, or says that it is nested too deeply.
    """
    import tomllib  # noqa: PLC0415 - most hosts have no such file

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except RecursionError as exc:
        raise ValueError("its arrays or tables are nested too deeply") from exc


def check_entry(key: str, value: object, settings: Mapping[str, Setting]) -> None:
    """Raise `BadOption` if a key of a configuration file is not an option, or its value has another type."""
    if key not in settings:
        raise BadOption.unknown(key, settings)
    if wanted := settings[key].describe_mismatch(value):
        raise BadOption(key, f"must be {wanted}, not {show(value)}")
