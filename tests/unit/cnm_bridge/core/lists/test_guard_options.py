# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options of guarded networks, and of containers on them."""

import pytest

from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.lists.guard import EgressOptions, OtherNetworks
from cnm_bridge.core.options.cni_options import parse_options


@pytest.mark.parametrize(
    "text", ["a.example,[2001:db8::/64]:443", "a.example [2001:db8::/64]:443", " a.example,\n[2001:db8::/64]:443, "]
)
def test_entries(text: str) -> None:
    """They are separated by commas or spaces, and no entry has either."""
    options = parse_options({"cni.egress.allow": text})
    assert options.egress == EgressOptions(allow=("a.example", "[2001:db8::/64]:443"))
    assert options.egress.guards


def test_a_containers_own_entries() -> None:
    """They are in addition to the network's, and reach the plugin as a capability argument."""
    options = parse_options({"cni.egress.allow": "a.example"}, {"cni.egress.allow": "b.example c.example"})
    assert options.egress.allow == ("a.example",)
    assert options.capabilities == {"egress": {"allow": ["b.example", "c.example"]}}


def test_an_unguarded_network() -> None:
    """Nothing but entries and audit guards."""
    assert not parse_options({"cni.egress.audit": "false", "cni.egress.other-networks": "allow"}).egress.guards
    assert parse_options({"cni.egress.audit": "true"}).egress == EgressOptions(audit=True)
    assert parse_options({"cni.egress.net-admin": "allow"}).egress == EgressOptions(allows_net_admin=True)


@pytest.mark.parametrize("chosen", OtherNetworks)
def test_other_networks(chosen: OtherNetworks) -> None:
    """They are refused by default."""
    assert parse_options({"cni.egress.other-networks": chosen.value}).egress.other_networks is chosen
    assert parse_options({}).egress.other_networks is OtherNetworks.REFUSE


@pytest.mark.parametrize(
    ("network", "endpoint", "error"),
    [
        ({"cni.egress.allow": " ,"}, {}, "cni.egress.allow: is empty"),
        ({}, {"cni.egress.allow": ""}, "cni.egress.allow: is empty"),
        ({"cni.egress.audit": "yes"}, {}, "cni.egress.audit: 'yes' is neither true nor false"),
        ({"cni.egress.other-networks": "no"}, {}, "'no' is neither refuse nor allow nor disconnect"),
        ({}, {"cni.egress.audit": "true"}, "is an option of networks, not of containers"),
        ({}, {"cni.egress.other-networks": "allow"}, "is an option of networks, not of containers"),
        ({}, {"cni.egress.net-admin": "allow"}, "is an option of networks, not of containers"),
        ({}, {"cni.capability.egress": "{}"}, "use cni.egress.allow"),
    ],
)
def test_what_is_refused(network: dict[str, str], endpoint: dict[str, str], error: str) -> None:
    """The error names the option. A container decides about none of its limits."""
    with pytest.raises(BadOption, match=error):
        parse_options(network, endpoint)
