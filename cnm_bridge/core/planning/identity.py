# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Tells plugins which container they attach (`cni.identity`); pure.

Docker does not say it in CreateEndpoint. At Join the container is found by its sandbox, so the plugins that run in the
sandbox can know it, and the IPAM plugin that runs at CreateEndpoint cannot: its DEL does not receive it either.

A plugin that gives names to containers, such as `dnsname`, reads `K8S_POD_NAME` and the capability `aliases`; it
receives both for any container. Options of the network or the endpoint take precedence over the identity.

A label has any text and any length. What a plugin cannot receive, or what is too long for an identity, is left out
before it is stored: DEL must receive what ADD did, and would never succeed.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Final

from cni_bridge_spec import JsonObject, JsonValue, find_object, get_objects
from cni_bridge_state import AttachmentRecord, IdentityRequest, ReservationInput
from cni_invoker import NetworkConfigurationList
from cni_invoker.documents.checks import check_arguments
from cni_invoker.errors import InvalidParameter
from cnm_bridge.core.engine_facts.container import EngineContainer
from cnm_bridge.core.lists.changes import cni_args_of, ipam_configuration, with_plugins
from cnm_bridge.core.lists.dhcp import find_dhcp
from cnm_bridge.core.options.cni_options import UNENCODABLE
from cnm_bridge.core.options.values import TEMPLATE_WORDS, fill_template
from cnm_bridge.core.planning.addressing import with_labels

ANY_ARGS: Final = (("IgnoreUnknown", "1"),)
"""Without it, plugins of the CNI project fail ADD and DEL if there is a key that they do not know."""

_PROJECT: Final = "com.docker.compose.project"
_SERVICE: Final = "com.docker.compose.service"
_POD_NAME: Final = "K8S_POD_NAME"
_LONGEST_BYTES: Final = 4096
"""The longest label, with its key, and the longest argument."""
_LABELS_BYTES: Final = 64 << 10
"""All labels with their keys: each plugin receives them, and the record has them."""
_ALIASES: Final = "aliases"
_ALIAS: Final = re.compile(r"[\w.-]{1,253}")
"""A plugin may write it into a file of host names."""
_SHOWN: Final = 64
_HOST_NAME: Final = "host-name"
_HOST_NAME_NUMBER: Final = "12"
_NOT_IN_HOST_NAMES: Final = re.compile(r"[^A-Za-z0-9-]+")
_LONGEST_HOST_NAME: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Identified:
    """An attachment with the identity of a container, and what of that no plugin can receive, in words."""

    attachment: AttachmentRecord
    left_out: tuple[str, ...] = ()


def with_identity(
    attachment: AttachmentRecord,
    request: IdentityRequest,
    container: EngineContainer,
    template: JsonObject | None = None,
) -> Identified:
    """Return an attachment whose plugins receive the identity of a container.

    They receive it as well where the template says in `args` (`cni.identity-args`).
    """
    left_out: list[str] = []
    network = NetworkConfigurationList.from_document(attachment.configuration)
    args = _arguments(container)
    name = container.name
    capability_args: JsonObject = attachment.capability_args
    if any(_ALIASES in plugin.capabilities for plugin in network.plugins):
        args[_POD_NAME] = name
        aliases = dict.fromkeys(filter(None, (name, container.labels.get(_SERVICE))))
        valid: list[JsonValue] = [alias for alias in aliases if _ALIAS.fullmatch(alias)]
        left_out += [f"alias {alias:.{_SHOWN}}" for alias in aliases if alias not in valid]
        capability_args = {_ALIASES: {network.name: valid}, **capability_args}
    passed = _add_args(attachment.args, args)
    left_out += [key for key, value in args.items() if value and key not in passed]
    labels, further = _receivable(_selected(container.labels, request.labels))
    left_out += further
    identified = _with_host_name(_with_labels(network, labels), name)
    if template is not None:
        identified = _with_identity_args(identified, template, container, labels)
    changed = replace(
        attachment,
        args=tuple(passed.items()),
        configuration=identified.document,
        capability_args=capability_args,
        reservation_input=_reservation_input(attachment, network),
    )
    return Identified(attachment=changed, left_out=tuple(left_out))


def _reservation_input(attachment: AttachmentRecord, network: NetworkConfigurationList) -> ReservationInput | None:
    """Return what the IPAM plugin has received without the identity, None if it did not run at CreateEndpoint."""
    if attachment.reservation_input is not None or not attachment.has_reservation:
        return attachment.reservation_input
    return ReservationInput(plugin=ipam_configuration(network.plugins[0]), args=attachment.args)


def _add_args(own: Sequence[tuple[str, str]], further: Mapping[str, str]) -> dict[str, str]:
    """Return CNI_ARGS with further ones, as far as plugins can receive them; an endpoint's own are not replaced."""
    passed = {**dict(ANY_ARGS), **dict(own)}
    for key, value in further.items():
        if value and key not in passed and _is_short(key, value):
            with suppress(InvalidParameter):
                check_arguments((*passed.items(), (key, value)))
                passed[key] = value
    return passed


def _is_short(key: str, value: str) -> bool:
    """Return whether a key and its value are text that a process can receive, and not too long."""
    text = key + value
    return len(text) <= _LONGEST_BYTES and not UNENCODABLE.search(text) and len(text.encode()) <= _LONGEST_BYTES


def _receivable(labels: Mapping[str, str]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the labels that plugins can receive, as many as are not too long together, and the others in words."""
    received: dict[str, str] = {}
    left_out = []
    room = _LABELS_BYTES
    for number, (key, value) in enumerate(labels.items()):
        if not _is_short(key, value):
            left_out.append(f"label {key:.{_SHOWN}}")
            continue
        room -= len((key + value).encode())
        if room < 0:
            left_out.append(f"{len(labels) - number} labels after the first {_LABELS_BYTES} bytes")
            break
        received[key] = value
    return received, left_out


def _arguments(container: EngineContainer) -> dict[str, str]:
    return {
        "DOCKER_CONTAINER_ID": container.id,
        "DOCKER_CONTAINER_NAME": container.name,
        "DOCKER_IMAGE": container.image,
        "DOCKER_COMPOSE_PROJECT": container.labels.get(_PROJECT, ""),
        "DOCKER_COMPOSE_SERVICE": container.labels.get(_SERVICE, ""),
    }


def _selected(labels: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    return {
        key: value for key, value in sorted(labels.items()) if any(fnmatchcase(key, pattern) for pattern in patterns)
    }


def _with_labels(network: NetworkConfigurationList, labels: Mapping[str, str]) -> NetworkConfigurationList:
    """Return a list with labels, without those that the configuration or an option gives already."""
    given = set()
    for plugin in network.plugins:
        given |= {label.get("key") for label in get_objects(cni_args_of(plugin.document), "labels")}
    further = [(key, value) for key, value in labels.items() if key not in given]
    return with_labels(network, further) if further else network


def _with_host_name(network: NetworkConfigurationList, name: str) -> NetworkConfigurationList:
    """Return a list that sends a container's name to the DHCP server, unless it sends another one or has no DHCP."""
    plugin, host_name = find_dhcp(network), _NOT_IN_HOST_NAMES.sub("-", name).strip("-")[:_LONGEST_HOST_NAME]
    if plugin is None or not host_name:
        return network
    ipam = find_object(plugin.document, "ipam") or {}
    provided = get_objects(ipam, "provide")
    if any(option.get("option") in {_HOST_NAME, _HOST_NAME_NUMBER} for option in provided):
        return network
    changed = {**ipam, "provide": [*provided, {"option": _HOST_NAME, "value": host_name}]}
    documents = [
        {**other.document, "ipam": changed} if other is plugin else other.document for other in network.plugins
    ]
    return with_plugins(network, documents)


def _with_identity_args(
    network: NetworkConfigurationList, template: JsonObject, container: EngineContainer, labels: Mapping[str, str]
) -> NetworkConfigurationList:
    """Return a list whose plugins have the template in `args`, with the values of a container.

    What a plugin's configuration has there already is not replaced.
    """
    words = dict(zip(TEMPLATE_WORDS, (container.id, container.name, container.image), strict=True))
    args = fill_template(template, words, [{"key": key, "value": value} for key, value in labels.items()])
    documents: list[JsonObject] = [
        {**plugin.document, "args": _merge(args, find_object(plugin.document, "args") or {})}
        for plugin in network.plugins
    ]
    return with_plugins(network, documents)


def _merge(further: JsonValue, own: JsonValue) -> JsonValue:
    """Return two values as one: objects have the keys of both, and otherwise `own` counts."""
    if isinstance(further, Mapping) and isinstance(own, Mapping):
        return {
            **further,
            **{key: _merge(further[key], value) if key in further else value for key, value in own.items()},
        }
    return own
