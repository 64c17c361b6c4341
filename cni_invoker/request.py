# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What one execution of a plugin is given: its environment and its standard input; pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cni_invoker.attachment import Attachment
from cni_invoker.config import NetworkConfigurationList, PluginConfiguration
from cni_invoker.result import Result
from cni_invoker.verbs import Verb
from cni_invoker.versions import is_at_least
from spec import JsonObject, JsonValue, render_json

__all__ = ["Request", "make_request"]

_RESERVED: Final = frozenset({"prevResult", "runtimeConfig"})
_RESERVED_PREFIX: Final = "cni.dev/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One execution of a plugin, ready to be carried out.

    Attributes:
        plugin: The plugin's type.
        verb: What it is asked to do.
        environment: All of its environment.
        stdin: All of its standard input, a JSON object.
    """

    plugin: str
    verb: Verb
    environment: Mapping[str, str] = field(hash=False)
    stdin: bytes


def make_request(
    verb: Verb,
    network: NetworkConfigurationList,
    plugin: PluginConfiguration,
    attachment: Attachment,
    *,
    prev_result: Result | None,
    plugin_dirs: Sequence[Path],
    environment: Mapping[str, str],
) -> Request:
    """Return the request to `plugin`, one of the plugins of `network`.

    Args:
        verb: What it is asked to do.
        network: Gives name and version, whatever the plugin's own configuration says.
        plugin: The plugin.
        attachment: What it is asked to do it for.
        prev_result: The result that it is told, None for none.
        plugin_dirs: Where it may find further plugins (`CNI_PATH`).
        environment: The environment it inherits; CNI's own variables win.
    """
    return Request(
        plugin=plugin.type,
        verb=verb,
        environment={
            **environment,
            "CNI_COMMAND": verb.value,
            "CNI_CONTAINERID": attachment.container_id,
            "CNI_NETNS": attachment.netns,
            "CNI_IFNAME": attachment.ifname,
            "CNI_ARGS": ";".join(f"{key}={value}" for key, value in attachment.args),
            "CNI_PATH": ":".join(map(str, plugin_dirs)),
        },
        stdin=render_json(_document(network, plugin, attachment.capability_args, prev_result)),
    )


def _document(
    network: NetworkConfigurationList,
    plugin: PluginConfiguration,
    capability_args: JsonObject,
    prev_result: Result | None,
) -> JsonObject:
    """Derive a plugin's configuration, CNI SPEC §3 "Deriving execution configuration from plugin configuration".

    Keys that are the runtime's to set do not get through from the administrator's file. `capabilities` is removed from
    1.0.0 on, whose text demands it; plugins of before may expect what libcni has always left in.
    """
    # A `prevResult` from the file would be taken by the first plugin of a list for a chain that never ran.
    document: dict[str, JsonValue] = {
        key: value
        for key, value in plugin.document.items()
        if key not in _RESERVED and not key.startswith(_RESERVED_PREFIX)
    }
    if is_at_least(network.cni_version, "1.0.0"):
        document.pop("capabilities", None)
    document["cniVersion"] = network.cni_version
    document["name"] = network.name
    runtime_config = {key: value for key, value in capability_args.items() if key in plugin.capabilities}
    if runtime_config:
        document["runtimeConfig"] = runtime_config
    if prev_result is not None:
        document["prevResult"] = prev_result.document
    return document
