# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options `cni.identity…`: whether and how plugins receive the identity of the container; pure."""

from collections.abc import Mapping
from typing import Final

from cni_bridge_spec import JsonError, JsonObject
from cni_bridge_state import IdentityRequest
from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.planning.identity_args import parse_template

_IDENTITY: Final = "cni.identity"
_IDENTITY_LABELS: Final = "cni.identity-labels"
_IDENTITY_REQUIRED: Final = "cni.identity-required"
IDENTITY_ARGS: Final = "cni.identity-args"
IDENTITY_OPTIONS: Final = (_IDENTITY, _IDENTITY_LABELS, _IDENTITY_REQUIRED, IDENTITY_ARGS)
_NO_IDENTITY: Final = "none"
_DOCKER: Final = "docker"
_BOOLEANS: Final = frozenset({"true", "false"})


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
        return parse_template(text)
    except JsonError as exc:
        raise BadOption(IDENTITY_ARGS, f"is not a template: {exc}") from exc
