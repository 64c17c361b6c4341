# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options `cni.identity…`: whether and how plugins receive the identity of the container; pure.

`cni.identity-args` is a template that says where in `args` plugins find names and labels of a container. Each
orchestrator has its own key there, and plugins read those that they know. Calico, for example, takes labels only from
`args["org.apache.mesos"].network_info.labels.labels`, a list of objects with `key` and `value`.
"""

import re
from collections.abc import Mapping
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, parse_json
from cni_bridge_state import IdentityRequest
from cnm_bridge.core.errors import BadOption

_IDENTITY: Final = "cni.identity"
_IDENTITY_LABELS: Final = "cni.identity-labels"
_IDENTITY_REQUIRED: Final = "cni.identity-required"
IDENTITY_ARGS: Final = "cni.identity-args"
IDENTITY_OPTIONS: Final = (_IDENTITY, _IDENTITY_LABELS, _IDENTITY_REQUIRED, IDENTITY_ARGS)
_NO_IDENTITY: Final = "none"
_DOCKER: Final = "docker"
_BOOLEANS: Final = frozenset({"true", "false"})
_LABELS: Final = "{labels}"
TEMPLATE_WORDS: Final = ("{id}", "{name}", "{image}")
_ANY_WORD: Final = re.compile(r"\{[a-z]*\}")


def parse_identity(options: Mapping[str, str]) -> IdentityRequest | None:
    """Return whether and how the plugins receive the identity of the container; None if they do not.

    Raises:
        BadOption: A value is invalid, or an option has no effect.
    """
    text = options.get(_IDENTITY, _NO_IDENTITY)
    required = options.get(_IDENTITY_REQUIRED, "false")
    if required not in _BOOLEANS:
        raise BadOption(_IDENTITY_REQUIRED, f"{required!r} is not true or false")
    if text == _NO_IDENTITY:
        for option in IDENTITY_OPTIONS[1:]:
            if option in options:
                raise BadOption(option, f"has no effect without {_IDENTITY}={_DOCKER}")
        return None
    if text != _DOCKER:
        raise BadOption(_IDENTITY, f"{text!r} is unknown; give {_NO_IDENTITY} or {_DOCKER}")
    patterns = tuple(pattern.strip() for pattern in options.get(_IDENTITY_LABELS, "").split(",") if pattern.strip())
    return IdentityRequest(labels=patterns, is_required=required == "true")


def parse_identity_args(text: str) -> JsonObject:
    """Parse a template for `args`.

    Raises:
        BadOption: It is not one.
    """
    try:
        template = as_object(parse_json(text.encode()), "the template")
        fill_template(template, dict.fromkeys(TEMPLATE_WORDS, ""), [])
    except JsonError as exc:
        raise BadOption(IDENTITY_ARGS, f"is not a template: {exc}") from exc
    return template


def fill_template(value: JsonValue, words: Mapping[str, str], labels: list[JsonValue]) -> JsonValue:
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
        return _ANY_WORD.sub(lambda match: words[match[0]], value)
    if isinstance(value, Mapping):
        return {key: fill_template(item, words, labels) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_template(item, words, labels) for item in value]
    return value
