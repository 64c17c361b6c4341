# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which containers can change the host's network."""

import pytest

from cni_bridge_spec import JsonObject
from cnm_bridge.core.engine_facts.container import find_privileges


@pytest.mark.parametrize(
    ("host_config", "options"),
    [
        ({}, ()),
        ({"Privileged": False, "CapAdd": None, "CapDrop": None, "UsernsMode": ""}, ()),
        ({"CapAdd": ["CAP_NET_RAW", "SYS_PTRACE"], "CapDrop": ["ALL"]}, ()),
        ({"Privileged": True}, ("--privileged",)),
        ({"CapAdd": ["CAP_SYS_ADMIN", "net_admin"]}, ("--cap-add NET_ADMIN", "--cap-add SYS_ADMIN")),
        ({"CapAdd": ["SYS_MODULE"], "CapDrop": ["ALL"]}, ("--cap-add SYS_MODULE",)),
        ({"CapAdd": ["NET_ADMIN"], "CapDrop": ["NET_ADMIN"]}, ("--cap-add NET_ADMIN",)),
        ({"CapAdd": ["ALL"]}, ("--cap-add ALL",)),
        ({"CapAdd": ["ALL"], "CapDrop": ["NET_ADMIN"]}, ("--cap-add ALL",)),
        ({"CapAdd": ["ALL"], "CapDrop": ["NET_ADMIN", "CAP_SYS_ADMIN", "SYS_MODULE"]}, ()),
    ],
)
def test_options(host_config: JsonObject, options: tuple[str, ...]) -> None:
    """Engines write capabilities with and without `CAP_`; what is added and dropped stays, except after `ALL`."""
    assert find_privileges(host_config, remaps_users=False) == options


def test_a_user_namespace() -> None:
    """Capabilities there do not reach the host, unless the container chooses the host's user namespace."""
    assert find_privileges({"Privileged": True}, remaps_users=True) == ()
    assert find_privileges({"Privileged": True, "UsernsMode": "host"}, remaps_users=True) == ("--privileged",)
