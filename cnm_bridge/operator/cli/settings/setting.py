# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A setting of the daemon: its name, its sources, and the type of its value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import click

from cnm_bridge.operator.cli.settings.config_file import ValueKind
from cnm_bridge.operator.cli.settings.network_type import Network
from cnm_bridge.operator.cli.settings.types import Directory, File, Seconds

__all__ = ["DIRECTORY", "FILE", "NETWORK", "SECONDS", "Setting"]

DIRECTORY: Final = Directory()
FILE: Final = File()
SECONDS: Final = Seconds()
NETWORK: Final = Network()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One option.

    Attributes:
        name: Its name without dashes, which is also its key in the configuration file.
        parameter: The parameter of the command's function.
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

    @property
    def kind(self) -> ValueKind:
        """The type of its value in the configuration file."""
        if self.type is NETWORK:
            return ValueKind.TABLES
        if self.multiple:
            return ValueKind.TEXTS
        if self.type is click.BOOL:
            return ValueKind.TRUTH
        return ValueKind.NUMBER if self.type is SECONDS else ValueKind.TEXT

    @property
    def variables(self) -> Sequence[str]:
        """Its environment variables; the first that is set wins."""
        own = f"CNI_BRIDGE_{self.name.replace('-', '_').upper()}"
        return [own, self.fallback] if self.fallback else [own]
