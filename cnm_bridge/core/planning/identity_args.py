# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The template `cni.identity-args`: where in `args` plugins find names and labels of a container; pure.

Each orchestrator has its own key in `args`, and plugins read those that they know. Calico, for example, takes labels
only from `args["org.apache.mesos"].network_info.labels.labels`, a list of objects with `key` and `value`.
"""

import re
from collections.abc import Mapping
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, find_object, parse_json
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.engine_facts import EngineContainer

_LABELS: Final = "{labels}"
_WORDS: Final = ("{id}", "{name}", "{image}")
_ANY_WORD: Final = re.compile(r"\{[a-z]*\}")


def parse_template(text: str) -> JsonObject:
    """Return a template.

    Raises:
        JsonError: It is not a JSON object, or has an unknown word in braces.
    """
    try:
        template = as_object(parse_json(text.encode()), "the template")
    except UnicodeEncodeError as exc:
        raise JsonError("the template is not UTF-8") from exc
    _fill(template, dict.fromkeys(_WORDS, ""), [])
    return template


def with_identity_args(
    network: NetworkConfigurationList, template: JsonObject, container: EngineContainer, labels: Mapping[str, str]
) -> NetworkConfigurationList:
    """Return a list whose plugins have the template in `args`, with the values of a container.

    What a plugin's configuration has there already is not replaced.
    """
    words = dict(zip(_WORDS, (container.id, container.name, container.image), strict=True))
    args = _fill(template, words, [{"key": key, "value": value} for key, value in labels.items()])
    documents: list[JsonValue] = [
        {**plugin.document, "args": _merge(args, find_object(plugin.document, "args") or {})}
        for plugin in network.plugins
    ]
    return NetworkConfigurationList.from_document({**network.document, "plugins": documents}, source=network.source)


def _fill(value: JsonValue, words: Mapping[str, str], labels: list[JsonValue]) -> JsonValue:
    """Return a part of a template with a container's values.

    Raises:
        JsonError: A word in braces is unknown, or the labels are a part of a text.
    """
    if isinstance(value, str):
        if value == _LABELS:
            return labels
        unknown = next((word for word in _ANY_WORD.findall(value) if word not in words), None)
        if unknown is not None:
            known = ", ".join((*words, f"{_LABELS} alone"))
            raise JsonError(f"{unknown} in {value!r} is not one of {known}")
        return _ANY_WORD.sub(lambda found: words[found[0]], value)
    if isinstance(value, Mapping):
        return {key: _fill(one, words, labels) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_fill(one, words, labels) for one in value]
    return value


def _merge(further: JsonValue, own: JsonValue) -> JsonValue:
    """Return two values as one: objects have the keys of both, and otherwise `own` counts."""
    if isinstance(further, Mapping) and isinstance(own, Mapping):
        return {
            **further,
            **{key: _merge(further[key], value) if key in further else value for key, value in own.items()},
        }
    return own
