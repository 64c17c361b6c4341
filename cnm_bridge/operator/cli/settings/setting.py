# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A setting of the daemon: its name, its sources, the type of its value, and the file that may have it.

The configuration file is TOML, with one key per option of `cni-bridge serve`, spelled like the option.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self

import click

from cni_invoker.documents.jsontypes import show
from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.settings import Settings, option_name
from cnm_bridge.operator.cli.settings.types import DIRECTORY, FILE, SECONDS

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
