# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The names that follow from an endpoint's ID; pure."""

from pathlib import Path
from typing import Final

from state import EndpointId

__all__ = ["STAGING_IFNAME", "alternative_name", "host_link_name", "staging_path"]

STAGING_IFNAME: Final = "eth0"
"""The link's name while the plugins see it; keys of third-party plugins and operators' eyes expect it."""

_HOST_PREFIX: Final = "cnib"
_HOST_DIGITS: Final = 11


def host_link_name(endpoint_id: EndpointId) -> str:
    """Return the link's name while it waits in the host namespace, e.g. `cnib0123456789a`.

    Fifteen characters are the kernel's limit. Eleven hexadecimal digits of an ID that Docker draws at random: should
    two endpoints ever agree in them, the kernel refuses the second name, and CreateEndpoint fails and cleans up.
    """
    return f"{_HOST_PREFIX}{endpoint_id[:_HOST_DIGITS]}"


def alternative_name(endpoint_id: EndpointId) -> str:
    """Return the alternative name that the link keeps in whichever namespace it is: `cni-bridge-<endpoint ID>`."""
    return f"cni-bridge-{endpoint_id}"


def staging_path(run_dir: Path, endpoint_id: EndpointId) -> Path:
    """Return the path of the endpoint's staging namespace."""
    return run_dir / "netns" / endpoint_id
