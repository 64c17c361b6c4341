# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Types of option values for click; they refuse invalid values."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.settings import ManagedNetwork
from cnm_bridge.system.sockets import parse_address

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_KEYS: Final[Mapping[str, type]] = {
    "name": str,
    "configuration": str,
    "locked": bool,
    "internal": bool,
    "options": dict,
}
_KINDS: Final[Mapping[type, str]] = {str: "a text", bool: "true or false", dict: "a table of texts"}


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
    """A directory, which may not exist, or be readable by root only; that is an error when it is read."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, readable=False, path_type=Path)


class File(_NotEmpty):
    """A file, which may not exist, or be readable by root only."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, readable=False, path_type=Path)


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
    """Refuse the address of an engine that is neither a Unix socket nor TCP."""
    if not value.startswith(("unix:///", "tcp://", "http://", "https://")):
        raise Refused(f"{value!r} is neither unix:///path nor tcp://host:port; set --docker-host")


def check_metrics_address(value: str) -> None:
    """Refuse an address for metrics that is not an IP address with a port; it may be empty."""
    if value:
        parse_address(value)


class Network(click.ParamType[ManagedNetwork]):
    """A managed network: `{"name": "kubernetes", "configuration": "pods", "locked": true}`, or `kubernetes=pods`."""

    name = "network"

    def convert(
        self,
        value: str | Mapping[str, Any] | ManagedNetwork,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> ManagedNetwork:
        """Return the network; refuse one that could not be created."""
        if isinstance(value, ManagedNetwork):
            return value
        if isinstance(value, str):
            name, _, configuration = value.partition("=")
            value = {"name": name, "configuration": configuration or name}
        try:
            return _from_table(value)
        except BadOption as exc:
            self.fail(f"{value.get('name') or 'a network'}: {exc}", param, ctx)


def refuse_conflicts(networks: Sequence[ManagedNetwork]) -> None:
    """Refuse managed networks that exclude each other.

    Raises:
        Refused: Two have the same name, or a locked one shares its configuration.
    """
    for number, one in enumerate(networks):
        for other in networks[number + 1 :]:
            if one.name == other.name:
                raise Refused(f"{one.name} is listed twice")
            if one.configuration == other.configuration and (one.locked or other.locked):
                raise Refused(
                    f"{one.name} and {other.name} have the CNI configuration {one.configuration}, but a locked network "
                    "does not share its configuration"
                )


def _from_table(table: Mapping[str, Any]) -> ManagedNetwork:
    # Imported for the first network: a daemon without one listens 50 ms earlier.
    from cni_invoker.documents.schema import show  # noqa: PLC0415
    from cnm_bridge.core.options.cni_options import CONFIGURATION, parse_options  # noqa: PLC0415

    for key, value in table.items():
        if key not in _KEYS:
            raise BadOption.unknown(key, _KEYS)
        if not isinstance(value, _KEYS[key]):
            raise BadOption(key, f"must be {_KINDS[_KEYS[key]]}, not {show(value)}")
    name, options = table.get("name", ""), table.get("options", {})
    if not _NAME.fullmatch(name):
        raise BadOption("name", f"must be the name of a Docker network, not {name!r}")
    configuration = table.get("configuration", name)
    if not configuration:
        raise BadOption("configuration", "must be the name of a CNI configuration")
    for key, value in options.items():
        if not isinstance(value, str):
            raise BadOption(key, f"must be a text, not {show(value)}")
        if key == CONFIGURATION:
            raise BadOption(key, "is the key `configuration` here")
    parse_options(options)
    return ManagedNetwork(
        name=name,
        configuration=configuration,
        locked=table.get("locked", False),
        internal=table.get("internal", False),
        options=tuple(sorted(options.items())),
    )
