# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a pending teardown says about itself."""

from cni_bridge_state import EndpointId
from cnm_bridge.driver.teardown.pending import Pending, Urgency

FIRST = EndpointId("1" * 64)


def test_states() -> None:
    """A teardown is leaving until its first attempt has ended, and again while another one runs."""
    pending = Pending(key=FIRST)
    assert (pending.is_leaving, pending.is_tried) == (True, False)
    pending.attempts = 1
    assert (pending.is_leaving, pending.is_tried) == (False, True)
    pending.is_running = True
    assert (pending.is_leaving, pending.is_tried) == (True, True)


def test_urgency() -> None:
    """A call that waits for a deferred teardown lets it begin; one that is to go first stays so."""
    pending = Pending(key=FIRST, urgency=Urgency.DEFERRED)
    pending.expedite()
    assert (pending.urgency, pending.wake.is_set()) == (Urgency.NORMAL, True)
    pending.wake.clear()
    pending.expedite(Urgency.FIRST)
    pending.expedite()
    assert (pending.urgency, pending.wake.is_set()) == (Urgency.FIRST, False)
