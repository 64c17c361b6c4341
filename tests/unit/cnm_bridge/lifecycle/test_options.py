# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Options are known or refused, and the refusal helps."""

import pytest

from cnm_bridge.errors import BadOption
from cnm_bridge.lifecycle.options import parse_endpoint_options, parse_network_options


def test_configuration_name() -> None:
    """`-o cni.network=NAME` names the network configuration list; without it, none is named."""
    assert parse_network_options({"cni.network": "blue"}) == "blue"
    assert parse_network_options({}) is None


def test_the_nearest_known_option_is_told() -> None:
    """A slip of the finger is answered with the option that was meant."""
    with pytest.raises(BadOption, match=r"option cni\.netwrok: .*did you mean cni\.network\?"):
        parse_network_options({"cni.netwrok": "blue"})


def test_a_far_option_is_answered_with_all() -> None:
    """An option that resembles nothing is answered with those there are."""
    with pytest.raises(BadOption, match=r"known options: cni\.network"):
        parse_network_options({"parent": "eth0"})


def test_an_empty_name_is_refused() -> None:
    """An empty variable in somebody's script must not bind by name by accident."""
    with pytest.raises(BadOption, match="is empty"):
        parse_network_options({"cni.network": ""})


def test_endpoints_have_no_options_yet() -> None:
    """An option without effect is refused rather than ignored."""
    parse_endpoint_options({})
    with pytest.raises(BadOption, match=r"cni\.ips"):
        parse_endpoint_options({"cni.ips": "10.0.0.1"})
