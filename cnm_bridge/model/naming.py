# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names that follow from an endpoint's ID; pure."""

import re
from pathlib import Path
from typing import Final

from state import EndpointId

__all__ = [
    "STAGING_IFNAME",
    "alternative_name",
    "endpoint_of",
    "host_link_name",
    "is_endpoint_id",
    "staging_directory",
    "staging_path",
]

STAGING_IFNAME: Final = "eth0"
"""The link's name while the plugins see it; keys of third-party plugins and operators' eyes expect it."""

_ALTERNATIVE_PREFIX: Final = "cni-bridge-"
_HOST_PREFIX: Final = "cnib"
_ENDPOINT_ID: Final = re.compile(r"[0-9a-f]{12,64}")
_HOST_DIGITS: Final = 11


def host_link_name(endpoint_id: EndpointId) -> str:
    """Return the link's name while it waits in the host namespace, e.g. `cnib0123456789a`.

    Fifteen characters are the kernel's limit. Eleven hexadecimal digits of an ID that Docker draws at random: should
    two endpoints ever agree in them, the kernel refuses the second name, and CreateEndpoint fails and cleans up.
    """
    return f"{_HOST_PREFIX}{endpoint_id[:_HOST_DIGITS]}"


def alternative_name(endpoint_id: EndpointId) -> str:
    """Return the alternative name that the link keeps in whichever namespace it is: `cni-bridge-<endpoint ID>`."""
    return f"{_ALTERNATIVE_PREFIX}{endpoint_id}"


def endpoint_of(alternative: str) -> EndpointId | None:
    """Return the ID of the endpoint that a link with this alternative name is of, None if it is none of ours."""
    name = alternative.removeprefix(_ALTERNATIVE_PREFIX)
    return EndpointId(name) if name != alternative and is_endpoint_id(name) else None


def is_endpoint_id(name: str) -> bool:
    """Tell whether a name can be Docker's ID of an endpoint; `cni-bridge-uplink` is an operator's."""
    return _ENDPOINT_ID.fullmatch(name) is not None


def staging_directory(run_dir: Path) -> Path:
    """Return the directory of the staging namespaces."""
    return run_dir / "netns"


def staging_path(run_dir: Path, endpoint_id: EndpointId) -> Path:
    """Return the path of the endpoint's staging namespace."""
    return staging_directory(run_dir) / endpoint_id
