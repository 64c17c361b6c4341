# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Missing links of a LAN are found."""

from dataclasses import replace

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.operator.doctor.facts import DockerNetwork, JoinedEndpoint, Severity
from cnm_bridge.operator.host import HostLink
from tests.unit.cnm_bridge.operator.doctor.host import HEALTHY, codes, configured, only


@pytest.mark.parametrize(
    ("plugin", "what"),
    [
        ({"type": "macvlan", "master": "eth1"}, "master of plugin macvlan"),
        ({"type": "host-device", "device": "eth1"}, "device of plugin host-device"),
        ({"type": "tap", "bridge": "eth1"}, "bridge of plugin tap"),
    ],
)
def test_a_link_that_is_gone(plugin: JsonObject, what: str) -> None:
    """It is an error if a Docker network uses the list; an alternative name is a name."""
    facts = replace(HEALTHY, networks=(configured(plugin),), links={"eth10": HostLink(mtu=1500)})
    finding = only(facts)
    assert (finding.code, finding.severity) == ("link-missing", Severity.WARNING)
    assert f"the host has no link eth1, the {what}: " in finding.text
    assert "did you mean eth10?" in finding.text
    docker = replace(facts.engine, networks=(DockerNetwork(name="lan", configuration="blue"),))
    assert only(replace(facts, engine=docker)).severity is Severity.ERROR
    assert codes(replace(facts, links={"enp1s0": HostLink(mtu=1500, altnames=("eth1",))})) == []
    assert codes(replace(facts, links={})) == []  # they could not be read


def test_links_that_the_host_need_not_have() -> None:
    """A container has the device, or the parent is in it."""
    links = {"lo": HostLink(mtu=65536)}
    device = configured({"type": "host-device", "device": "eth1"})
    assert (
        codes(
            replace(
                HEALTHY,
                networks=(device,),
                links=links,
                endpoints=(JoinedEndpoint(container="web", configuration="blue"),),
            )
        )
        == []
    )
    inner = configured({"type": "macvlan", "master": "eth0", "linkInContainer": True})
    assert codes(replace(HEALTHY, networks=(inner,), links=links)) == []
