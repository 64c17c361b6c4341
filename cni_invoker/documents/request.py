# SPDX-License-Identifier: Apache-2.0
"""The inputs of one execution of a plugin: its environment and its standard input."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cni_invoker.documents.attachment import Attachment, AttachmentKey
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, render_json
from cni_invoker.documents.lists import NetworkConfigurationList, PluginConfiguration, is_reserved
from cni_invoker.documents.results import Result
from cni_invoker.documents.versions import SUPPORTED_VERSIONS, VALID_ATTACHMENTS, Verb, is_at_least

_DUMMY: Final = "dummy"
"""libcni's placeholder for VERSION: some old plugins require variables that this verb does not need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One execution of a plugin, ready to be carried out.

    Attributes:
        plugin: The plugin's type.
        environment, stdin: The whole of each; the latter is a JSON object.
        ports: How many ports it is to publish (capability `portMappings`).
        ipam: The type of its IPAM plugin, None if it has none.
        network: The network's name; empty for VERSION.
    """

    plugin: str
    verb: Verb
    environment: Mapping[str, str] = field(hash=False)
    stdin: bytes
    ports: int = 0
    ipam: str | None = None
    network: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """A factory of requests."""

    plugin_dirs: tuple[Path, ...]
    environment: Mapping[str, str] = field(hash=False)

    def attachment(
        self,
        verb: Verb,
        network: NetworkConfigurationList,
        plugin: PluginConfiguration,
        attachment: Attachment,
        prev_result: Result | None,
    ) -> Request:
        """Return the request for ADD, CHECK or DEL to `plugin`, with the name and version of `network`."""
        document = _document(network, plugin)
        runtime_config = {key: value for key, value in attachment.capability_args.items() if key in plugin.capabilities}
        if runtime_config:
            document["runtimeConfig"] = runtime_config
        if prev_result is not None:
            document["prevResult"] = prev_result.document
        return self._request(
            verb,
            plugin.type,
            document,
            container_id=attachment.container_id,
            netns=attachment.netns,
            ifname=attachment.ifname,
            args=";".join(f"{key}={value}" for key, value in attachment.args),
            ports=len(ports) if isinstance(ports := runtime_config.get("portMappings"), list) else 0,
            ipam=plugin.ipam_type,
            network=network.name,
        )

    def gc(
        self, network: NetworkConfigurationList, plugin: PluginConfiguration, valid: Collection[AttachmentKey]
    ) -> Request:
        """Return the request for GC; the plugin may delete resources of all attachments that are not in `valid`."""
        attachments: list[JsonValue] = [{"containerID": key.container_id, "ifname": key.ifname} for key in valid]
        document = {**_document(network, plugin), **dict.fromkeys(VALID_ATTACHMENTS, attachments)}
        return self._request(Verb.GC, plugin.type, document, network=network.name)

    def status(self, network: NetworkConfigurationList, plugin: PluginConfiguration) -> Request:
        """Return the request for STATUS."""
        return self._request(Verb.STATUS, plugin.type, _document(network, plugin), network=network.name)

    def version(self, plugin_type: str) -> Request:
        """Return the request for VERSION."""
        document: JsonObject = {"cniVersion": SUPPORTED_VERSIONS[-1]}
        return self._request(Verb.VERSION, plugin_type, document, netns=_DUMMY, ifname=_DUMMY, path=_DUMMY)

    def _request(
        self,
        verb: Verb,
        plugin_type: str,
        document: JsonObject,
        *,
        container_id: str = "",
        netns: str = "",
        ifname: str = "",
        args: str = "",
        path: str | None = None,
        ports: int = 0,
        ipam: str | None = None,
        network: str = "",
    ) -> Request:
        return Request(
            plugin=plugin_type,
            verb=verb,
            environment={
                **self.environment,
                "CNI_COMMAND": verb.value,
                "CNI_CONTAINERID": container_id,
                "CNI_NETNS": netns,
                "CNI_IFNAME": ifname,
                "CNI_ARGS": args,
                "CNI_PATH": ":".join(map(str, self.plugin_dirs)) if path is None else path,
            },
            stdin=render_json(document),
            ports=ports,
            ipam=ipam,
            network=network,
        )


def requests_for_add(
    network: NetworkConfigurationList,
    attachment: Attachment,
    plugin_dirs: Sequence[Path],
    environment: Mapping[str, str] = os.environ,
) -> tuple[Request, ...]:
    """Return what the plugins of a list would receive for ADD, in order, without the previous results."""
    directories = tuple(directory.absolute() for directory in plugin_dirs)
    requests = Requests(plugin_dirs=directories, environment=environment)
    return tuple(requests.attachment(Verb.ADD, network, plugin, attachment, None) for plugin in network.plugins)


def _document(network: NetworkConfigurationList, plugin: PluginConfiguration) -> dict[str, JsonValue]:
    """Derive a plugin's configuration, CNI SPEC §3 "Deriving execution configuration from plugin configuration".

    Keys that only the runtime may set are dropped. `capabilities` is removed from 1.0.0 on, as its text requires; older
    plugins may expect the key, which libcni has always passed on.
    """
    document: dict[str, JsonValue] = {key: value for key, value in plugin.document.items() if not is_reserved(key)}
    if is_at_least(network.cni_version, "1.0.0"):
        document.pop("capabilities", None)
    document["cniVersion"] = network.cni_version
    document["name"] = network.name
    return document
