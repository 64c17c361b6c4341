# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The allow-list in the file of a guarded network: entries are added and removed, for the containers that come next."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cni_bridge_spec import JsonError, JsonObject, as_object, get_objects, get_strings, parse_json
from cni_invoker import ConfigurationDirectories
from cni_invoker.errors import ConfigurationNotFound
from cnm_bridge.core.engine_facts.network import EngineNetwork
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.lists.guard import is_guard, is_guarded, parse_egress
from cnm_bridge.core.options.cni_options import list_name
from cnm_bridge.core.settings import Settings
from cnm_bridge.operator.host import write_whole
from cnm_bridge.operator.networks.creation import ENGINE_LIMIT_S
from cnm_bridge.operator.networks.list_document import render_list
from cnm_bridge.system.engine import Engine

__all__ = ["AllowList", "find_allow_list"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowList:
    """The allow-list of a network.

    Attributes:
        configuration: The name of the CNI configuration, by which `cni-egress` knows the network.
    """

    configuration: str
    file: Path
    content: bytes
    entries: tuple[str, ...]

    def added(self, entries: Sequence[str]) -> tuple[str, ...]:
        """Return the list with further entries."""
        return tuple(dict.fromkeys([*self.entries, *entries]))

    def removed(self, entries: Sequence[str]) -> tuple[str, ...]:
        """Return the list without entries, in upper or lower case."""
        unwanted = {entry.lower() for entry in entries}
        return tuple(entry for entry in self.entries if entry.lower() not in unwanted)

    def change(self, entries: Sequence[str], live: Callable[[], T]) -> T:
        """Write other entries into the file, then do `live`; if that fails, the file has its former content again.

        A container that starts meanwhile has the new list.

        Raises:
            Refused: The file cannot be written; nothing was changed.
        """
        if tuple(entries) == self.entries:
            return live()
        mode = self.file.stat().st_mode & 0o777
        document = as_object(parse_json(self.content), "the list")
        plugins = [
            {**plugin, "allow": list(entries)} if is_guard(plugin) else plugin
            for plugin in get_objects(document, "plugins")
        ]
        changed: JsonObject = {**document, "plugins": [*plugins]}
        write_whole(self.file, render_list(changed).encode(), mode=mode)
        try:
            return live()
        except BaseException:
            write_whole(self.file, self.content, mode=mode)
            raise


async def find_allow_list(settings: Settings, name: str) -> AllowList:
    """Return the allow-list of a Docker network.

    Raises:
        Refused: It is not guarded, or its allow-list is not in a file; the text says what to do.
        EngineUnavailable: The engine does not answer.
    """
    network = await Engine(settings.docker_host, ENGINE_LIMIT_S).find_network_named(name)
    if network is None or network.driver != settings.driver_name:
        driver = "is none of Docker" if network is None else f"is of driver {network.driver}"
        raise Refused(f"the network {name} {driver}; `cni-bridge ls --networks` shows those of {settings.driver_name}")
    index = ConfigurationDirectories(settings.cni_conf_dirs).index()
    configuration = list_name(network, index.names)
    _refuse_options(network, configuration)
    try:
        found = index.find(configuration)
    except ConfigurationNotFound as exc:
        raise Refused(str(exc)) from exc
    if not is_guarded(found):
        raise Refused(
            f"the network {name} is not guarded; make it again with cni-bridge network create {name} --allow ENTRY"
        )
    try:
        if found.source is None:
            raise Refused(f"the list {configuration} is in no file")
        content = found.source.read_bytes()
        guards = [
            plugin for plugin in get_objects(as_object(parse_json(content), "the list"), "plugins") if is_guard(plugin)
        ]
        (guard,) = guards
        entries = get_strings(guard, "allow") if "allow" in guard else ()
    except (OSError, JsonError, ValueError) as exc:
        raise Refused(
            f"the allow-list of {name} cannot be changed in {found.source}: {exc}; edit the plugin egress there"
        ) from exc
    return AllowList(configuration=configuration, file=found.source, content=content, entries=entries)


def _refuse_options(network: EngineNetwork, configuration: str) -> None:
    """Refuse a network whose allow-list Docker has: a change would be lost with the next start of a container."""
    if parse_egress(network.options).guards:
        raise Refused(
            f"the allow-list of {network.name} is in the option cni.egress.allow of its Docker network, which Docker "
            "cannot change: make the network again, best with its list in a file, which can be changed: cni-bridge "
            f"network create {network.name} --allow ENTRY. Only until they are started again, its containers have what "
            f"`cni-egress allow {configuration}` and `cni-egress deny {configuration}` say, as all on the list "
            f"{configuration}"
        )
