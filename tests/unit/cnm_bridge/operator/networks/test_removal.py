# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which rules of the plugin `firewall` go with a network."""

from cnm_bridge.operator.networks.removal import isolation_rules

SAVED = """*filter
:CNI-ISOLATION-STAGE-1 - [0:0]
-A FORWARD -i cni-blue -j ACCEPT
-A CNI-ISOLATION-STAGE-1 -i cni-blue ! -o cni-blue -m comment --comment "of CNI" -j CNI-ISOLATION-STAGE-2
-A CNI-ISOLATION-STAGE-1 -i cni-blue2 ! -o cni-blue2 -j CNI-ISOLATION-STAGE-2
-A CNI-ISOLATION-STAGE-1 -j RETURN
-A CNI-ISOLATION-STAGE-2 -o cni-blue -j DROP
"""


def test_the_rules_of_a_bridge() -> None:
    """They are in the two chains and name the bridge; a comment with spaces is one argument."""
    comment = ("-m", "comment", "--comment", "of CNI")
    assert [*isolation_rules(SAVED.splitlines(), {"cni-blue"})] == [
        ("CNI-ISOLATION-STAGE-1", "-i", "cni-blue", "!", "-o", "cni-blue", *comment, "-j", "CNI-ISOLATION-STAGE-2"),
        ("CNI-ISOLATION-STAGE-2", "-o", "cni-blue", "-j", "DROP"),
    ]
    assert [*isolation_rules(SAVED.splitlines(), ())] == []
