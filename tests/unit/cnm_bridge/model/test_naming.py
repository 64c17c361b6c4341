# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Names lead from an endpoint to its link and back, and nobody else's name does."""

import pytest

from cnm_bridge.model.naming import alternative_name, endpoint_of
from state import EndpointId

ENDPOINT = EndpointId("0123456789abcdef" * 4)


def test_there_and_back() -> None:
    """A link tells whose it is."""
    assert endpoint_of(alternative_name(ENDPOINT)) == ENDPOINT


@pytest.mark.parametrize(
    "name",
    [
        "eth0",
        ENDPOINT,
        "cni-bridge-",
        "cni-bridge-uplink",
        f"cni-bridge-{ENDPOINT}0",
        f"cni-bridge-{ENDPOINT}\n",
        f"cni-bridge-../{ENDPOINT}",
        f"xcni-bridge-{ENDPOINT}",
        f"cni-bridge-{ENDPOINT.upper()}",
    ],
)
def test_names_of_others(name: str) -> None:
    """An operator may give such names, and what has them is the operator's."""
    assert endpoint_of(name) is None
