# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a shell completes: containers, networks, configurations, and the keys of options.

The daemon and the engine are asked, with little patience; without an answer nothing is completed. What is asked is
imported when a shell completes: each command imports this module.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from cni_bridge_spec import get_objects, get_str
from cnm_bridge.core.errors import BridgeError
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.cli.admin_client import AdminClient
from cnm_bridge.operator.cli.output import SHORT

if TYPE_CHECKING:
    from cnm_bridge.operator.cli.containers import Inventory

_PATIENCE_S: Final = 1.0

_NEEDED: Final = frozenset({"admin_socket", "run_dir", "docker_host", "cni_conf_dirs"})

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completes(find: Callable[[Settings], Iterable[str]]) -> Complete:
    """Return a completion of the names that `find` returns for the settings of the command line."""

    @wraps(find)
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        with suppress(BridgeError, OSError):
            names = sorted(set(find(_settings(context))))
            return [CompletionItem(name) for name in names if name.startswith(incomplete)]
        return []

    return complete


@_completes
def containers(settings: Settings) -> Iterable[str]:
    """Return the names of containers on networks of cni-bridge."""
    return (container.name for container in _inventory(settings).containers.values())


@_completes
def networks(settings: Settings) -> Iterable[str]:
    """Return the names of networks of cni-bridge."""
    return _inventory(settings).networks.values()


@_completes
def configurations(settings: Settings) -> Iterable[str]:
    """Return the names of the CNI configurations on disk."""
    return _configurations(settings)


@_completes
def explained(settings: Settings) -> Iterable[str]:
    """Return the names of networks and of configurations."""
    found = [*_configurations(settings)]
    with suppress(BridgeError):
        found += _inventory(settings).networks.values()
    return found


@_completes
def cleanup_ids(settings: Settings) -> Iterable[str]:
    """Return the short IDs of failed teardowns and unclaimed addresses."""
    left = AdminClient(settings.admin_path, _PATIENCE_S).get("leftovers")
    teardowns = (get_str(one, "endpointId")[:SHORT] for one in get_objects(left, "pendingTeardowns"))
    return (*teardowns, *(get_str(one, "id") for one in get_objects(left, "leftovers")))


@_completes
def option_keys(_: Settings) -> Iterable[str]:
    """Return the keys of options of networks and endpoints; those of families end with a dot."""
    from cnm_bridge.core.options.cni_options import OPTION_FAMILIES, OPTIONS  # noqa: PLC0415

    return (*(f"{option}=" for option in OPTIONS), *OPTION_FAMILIES)


def _settings(context: click.Context) -> Settings:
    """Return the settings of an unfinished command line; what is missing or invalid has its default."""
    given = {name: value for name, value in context.params.items() if value is not None}
    return Settings(**{name: given[name] for name in _NEEDED & given.keys()})


def _inventory(settings: Settings) -> "Inventory":
    from cnm_bridge.operator.cli.containers import take_inventory  # noqa: PLC0415

    return take_inventory(AdminClient(settings.admin_path, _PATIENCE_S), settings.docker_host, limit_s=_PATIENCE_S)


def _configurations(settings: Settings) -> Iterable[str]:
    from cni_invoker import ConfigurationDirectories  # noqa: PLC0415

    return ConfigurationDirectories(settings.cni_conf_dirs).index().names
