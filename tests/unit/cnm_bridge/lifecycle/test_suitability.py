# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What cannot work is refused when the network is made, and what is done in vain is said."""

import pytest

from cni_invoker import NetworkConfigurationList
from cnm_bridge.errors import Refused
from cnm_bridge.lifecycle.suitability import refuse_unsuitable, what_is_lost
from spec import JsonObject


def network(*plugins: JsonObject) -> NetworkConfigurationList:
    """Return a list of these plugins."""
    return NetworkConfigurationList.from_document({"cniVersion": "1.0.0", "name": "blue", "plugins": list(plugins)})


@pytest.mark.parametrize("plugin", [{"type": "macvlan", "ipam": {"type": "dhcp"}}, {"type": "vrf"}])
def test_what_cannot_work(plugin: JsonObject) -> None:
    """The plugin is named, also where it is another's IPAM."""
    with pytest.raises(Refused, match=r"blue cannot be used: plugin (dhcp|vrf): "):
        refuse_unsuitable(network({"type": "bridge"}, plugin))


def test_what_is_done_in_vain() -> None:
    """Only plugins that lose something are named."""
    lossy = network({"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "tuning"}, {"type": "sbr"})
    refuse_unsuitable(lossy)
    assert [text.partition(":")[0] for text in what_is_lost(lossy)] == ["plugin tuning", "plugin sbr"]
    assert what_is_lost(network({"type": "bridge"})) == ()
