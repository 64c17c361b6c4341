# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requested addresses. Requested values are tested in `test_plan.py`, too."""

from ipaddress import ip_address

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.errors import Refused
from cnm_bridge.core.planning.addressing import plan_addresses, requested_addresses
from tests.records import list_of

WANTED = (ip_address("10.1.0.9"), ip_address("fd00::9"))


@pytest.mark.parametrize(
    "plugin",
    [
        {"type": "bridge", "ipam": {"type": "host-local"}},
        {"type": "bridge", "ipam": {"type": "another"}},
        {"type": "bridge", "capabilities": {"ips": True}, "ipam": {"type": "another"}},
    ],
)
def test_requested_addresses(plugin: JsonObject) -> None:
    """They are found again in what the plugins receive, whichever way passes them; without a request there are none."""
    network = list_of(plugin)
    passed = plan_addresses(network, WANTED, (), internal=False)
    assert requested_addresses(passed.configuration, (), passed.capability_args) == set(WANTED)
    assert requested_addresses(network, (), {}) == set()


def test_an_ipam_plugin_that_reserves_no_requested_address() -> None:
    """A request is refused before the plugin runs: it would fail at ADD and at DEL, or give the address away again."""
    main: JsonObject = {"type": "bridge", "ipam": {"type": "whereabouts", "range": "10.1.0.0/24"}}
    network = list_of(main, version="0.4.0")
    with pytest.raises(Refused, match=r"its IPAM plugin whereabouts would not reserve it.* leave out cni[.]ips"):
        plan_addresses(network, WANTED, (), internal=False)
    assert plan_addresses(network, (), (), internal=False).configuration == network
