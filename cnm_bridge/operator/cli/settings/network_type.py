# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The type of the option `networks`: a managed network, as a table of the configuration file or as a word."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from cnm_bridge.core.errors import BadOption, Refused
from cnm_bridge.core.settings import ManagedNetwork

__all__ = ["Network", "refuse_conflicts"]

_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_KEYS: Final[Mapping[str, type]] = {
    "name": str,
    "configuration": str,
    "locked": bool,
    "internal": bool,
    "options": dict,
}
_KINDS: Final[Mapping[type, str]] = {str: "a text", bool: "true or false", dict: "a table of texts"}


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
    from cnm_bridge.core.planning.options.cni_options import CONFIGURATION, parse_options  # noqa: PLC0415

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
