# SPDX-License-Identifier: Apache-2.0
"""The inputs of one execution of a plugin: its environment and its standard input."""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cni_invoker.documents.attachment import Attachment, AttachmentKey
from cni_invoker.documents.jsontypes import JsonObject, JsonValue, render_json
from cni_invoker.documents.lists import NetworkConfigurationList, PluginConfiguration, is_reserved
from cni_invoker.documents.results import Result
from cni_invoker.documents.versions import SUPPORTED_VERSIONS, Verb, is_at_least
from cni_invoker.errors import ErrorCode, InvalidParameter

_VALID_ATTACHMENTS: Final = ("cni.dev/valid-attachments", "cni.dev/attachments")
"""The key of GC in the text of 1.1.0, and the earlier spelling of libcni and plugins."""

_DUMMY: Final = "dummy"
"""libcni's placeholder for VERSION: some old plugins require variables that this verb does not need."""

_TRACE_VARIABLES: Final = ("TRACEPARENT", "TRACESTATE", "BAGGAGE")
"""The variables that carry a trace context, as in libcni and OpenTelemetry's "Environment Variables as Carriers"."""

# W3C Trace Context: version ff is forbidden, and so are all-zero trace and span IDs.
_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_HEADER: Final = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceContext:
    """A span that an operation belongs to (W3C Trace Context, W3C Baggage).

    Attributes:
        traceparent: E.g. `00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`.
        tracestate: Data of tracing systems, e.g. `congo=t61rcWkgMzE`; may be empty.
        baggage: Data of the application, e.g. `tenant=blue`; may be empty.

    Raises:
        InvalidParameter: A value violates the W3C format.
    """

    traceparent: str
    tracestate: str = ""
    baggage: str = ""

    def __post_init__(self) -> None:
        if _TRACEPARENT.fullmatch(self.traceparent) is None:
            rule = "it must be a version, a trace, a span and flags, as in W3C Trace Context"
            raise InvalidParameter("traceparent", self.traceparent, rule, code=ErrorCode.INVALID_ENVIRONMENT)
        for name, value in (("tracestate", self.tracestate), ("baggage", self.baggage)):
            if _HEADER.fullmatch(value) is None:
                raise InvalidParameter(name, value, "it must be printable ASCII", code=ErrorCode.INVALID_ENVIRONMENT)

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables that carry it, without empty ones."""
        values = zip(_TRACE_VARIABLES, (self.traceparent, self.tracestate, self.baggage), strict=True)
        return {name: value for name, value in values if value}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One execution of a plugin, ready to be carried out.

    Attributes:
        plugin: The plugin's type.
        verb: The operation.
        environment: Its whole environment.
        stdin: Its whole standard input, a JSON object.
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
    find_trace: Callable[[], TraceContext | None] = lambda: None

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
        document = {**_document(network, plugin), **dict.fromkeys(_VALID_ATTACHMENTS, attachments)}
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
                **self._inherited(),
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

    def _inherited(self) -> Mapping[str, str]:
        trace = self.find_trace()
        if trace is None:
            return self.environment
        # Replace all trace variables: an inherited TRACESTATE belongs to another TRACEPARENT.
        others = {key: value for key, value in self.environment.items() if key not in _TRACE_VARIABLES}
        return {**others, **trace.environment}


def requests_for_add(
    network: NetworkConfigurationList,
    attachment: Attachment,
    plugin_dirs: Sequence[Path],
    environment: Mapping[str, str] = os.environ,
) -> tuple[Request, ...]:
    """Return what the plugins of a list would receive for ADD, in order, without the previous results.

    Args:
        network: The list.
        attachment: The container.
        plugin_dirs: Where a plugin searches further plugins.
        environment: The environment that plugins inherit.
    """
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
