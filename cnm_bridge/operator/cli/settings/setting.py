# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A setting of the daemon: its name, its sources, and the type of its value."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self

import click

from cnm_bridge.core.settings import Settings, option_name
from cnm_bridge.operator.cli.settings.config_file import ValueKind
from cnm_bridge.operator.cli.settings.types import Directory, File, Network, Seconds

_DIRECTORY: Final = Directory()
FILE: Final = File()
_SECONDS: Final = Seconds()
NETWORK: Final = Network()

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

    @property
    def kind(self) -> ValueKind:
        """The type of its value in the configuration file."""
        if self.type is NETWORK:
            return ValueKind.TABLES
        if self.multiple:
            return ValueKind.TEXTS
        if self.type is click.BOOL:
            return ValueKind.TRUTH
        return ValueKind.NUMBER if self.type is _SECONDS else ValueKind.TEXT

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
            return _SECONDS
        case str():
            return click.STRING
        case _ if name.endswith("-dir"):
            return _DIRECTORY
        case Path() | None:
            return FILE
        case _:
            raise TypeError(f"setting {name} needs a type")
