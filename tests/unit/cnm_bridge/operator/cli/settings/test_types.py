# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Managed networks on the command line and in the configuration file; what cannot be created is refused."""

from collections.abc import Mapping

import click
import pytest

from cnm_bridge.core.errors import Refused
from cnm_bridge.core.settings import ManagedNetwork
from cnm_bridge.operator.cli.settings.types import Network, refuse_conflicts

PODS = ManagedNetwork(name="kubernetes", configuration="pods")


def convert(value: str | Mapping[str, object]) -> ManagedNetwork:
    """Convert an option's value."""
    return Network().convert(value, None, None)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("kubernetes=pods", PODS),
        ("pods", ManagedNetwork(name="pods", configuration="pods")),
        ({"name": "pods"}, ManagedNetwork(name="pods", configuration="pods")),
        (
            {
                "name": "kubernetes",
                "configuration": "pods",
                "locked": True,
                "internal": True,
                "options": {"cni.ifname-prefix": "net", "cni.attach": "move"},
            },
            ManagedNetwork(
                name="kubernetes",
                configuration="pods",
                locked=True,
                internal=True,
                options=(("cni.attach", "move"), ("cni.ifname-prefix", "net")),
            ),
        ),
    ],
)
def test_words_and_tables(value: str | Mapping[str, object], expected: ManagedNetwork) -> None:
    """The configuration is that of the network's own name, unless it is named."""
    assert convert(value) == expected


@pytest.mark.parametrize(
    ("table", "error"),
    [
        ({}, "option name: must be the name of a Docker network, not ''"),
        ({"name": "a b"}, "not 'a b'"),
        ({"name": 1}, "option name: must be a text, not 1"),
        ({"name": "a", "lock": True}, "did you mean locked"),
        ({"name": "a", "locked": "yes"}, "option locked: must be true or false, not a string"),
        ({"name": "a", "configuration": ""}, "must be the name of a CNI configuration"),
        ({"name": "a", "options": {"cni.ips": 1}}, "option cni.ips: must be a text, not 1"),
        ({"name": "a", "options": {"cni.args.x": ["hunter2"]}}, "option cni.args.x: must be a text, not an array"),
        ({"name": "a", "options": [{"cni.args.x": "hunter2"}]}, "must be a table of texts, not an array"),
        ({"name": "a", "options": {"cni.ipz": "1"}}, "did you mean cni.ips"),
        ({"name": "a", "options": {"cni.network": "b"}}, "is the key `configuration` here"),
    ],
)
def test_what_could_not_be_created_is_refused(table: Mapping[str, object], error: str) -> None:
    """The text names the network and the key, and has no value that may be a credential."""
    with pytest.raises(click.BadParameter, match=error) as caught:
        convert(table)
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize(
    ("other", "error"),
    [
        (ManagedNetwork(name="kubernetes", configuration="other"), "kubernetes is listed twice"),
        (ManagedNetwork(name="other", configuration="pods", locked=True), "does not share its configuration"),
    ],
)
def test_networks_that_exclude_each_other(other: ManagedNetwork, error: str) -> None:
    """Two networks may share a configuration if none is locked."""
    refuse_conflicts([PODS, ManagedNetwork(name="other", configuration="pods")])
    with pytest.raises(Refused, match=error):
        refuse_conflicts([PODS, other])
