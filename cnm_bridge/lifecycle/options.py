# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a user can give with `-o` and `driver-opt`; pure."""

from collections.abc import Mapping
from typing import Final

from cnm_bridge.errors import BadOption

__all__ = ["CONFIGURATION", "ENDPOINT_OPTIONS", "NETWORK_OPTIONS", "parse_endpoint_options", "parse_network_options"]

CONFIGURATION: Final = "cni.network"
"""Names the network configuration list that a network is bound to."""

NETWORK_OPTIONS: Final = frozenset({CONFIGURATION})
ENDPOINT_OPTIONS: Final[frozenset[str]] = frozenset()


def parse_network_options(options: Mapping[str, str]) -> str | None:
    """Return the name of the network configuration list, None if it was not given.

    Raises:
        BadOption: An option is unknown, or its value cannot be.
    """
    _refuse_unknown(options, NETWORK_OPTIONS)
    name = options.get(CONFIGURATION)
    if name == "":
        raise BadOption(CONFIGURATION, "is empty; give the name of a CNI network configuration")
    return name


def parse_endpoint_options(options: Mapping[str, str]) -> None:
    """Check the options of an endpoint.

    Raises:
        BadOption: An option is unknown.
    """
    _refuse_unknown(options, ENDPOINT_OPTIONS)


def _refuse_unknown(options: Mapping[str, str], known: frozenset[str]) -> None:
    for option in sorted(options):
        if option not in known:
            raise BadOption.unknown(option, known)
