# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the doctor reads of other programs."""

import json

from cnm_bridge.operator.doctor.gather import lost_neighbors


def test_sessions_of_bgp() -> None:
    """Those that an operator has shut down are no fault; without an instance of BGP there is no JSON."""
    shown = {
        "10.99.0.2": {"bgpState": "Established"},
        "10.99.0.3": {"bgpState": "Active"},
        "10.99.0.4": {"bgpState": "Idle", "adminShutDown": True},
        "vrfName": "default",
    }
    assert lost_neighbors(json.dumps(shown, indent=1).splitlines()) == ("10.99.0.3",)
    assert lost_neighbors(["% BGP instance not found"]) == lost_neighbors([]) == ()
