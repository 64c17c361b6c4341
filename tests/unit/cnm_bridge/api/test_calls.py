# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""How long Docker has been quiet is known, for what can wait until it is."""

import math

from cnm_bridge.api import CallsUnderWay


def test_docker_is_quiet_but_for_one_endpoint() -> None:
    """Whatever it wants of another, of a network, or of both at once is something else."""
    calls = CallsUnderWay()
    assert calls.quiet_s("a") == math.inf
    with calls.counted("Leave", "a"):
        assert (calls.quiet_s("a"), calls.quiet_s("b")) == (math.inf, 0)
        with calls.counted("Join", "b"):
            assert calls.quiet_s("a") == calls.quiet_s("b") == 0
        assert 0 < calls.quiet_s("a") < 10
    assert 0 < calls.quiet_s("b") < 10
    for endpoint_id in ("c", "c", "c", "d", "d"):  # not only the last call of all is remembered
        with calls.counted("Join", endpoint_id):
            pass
    assert 0 < calls.quiet_s("d") < 10
    with calls.counted("CreateNetwork", None):
        assert calls.quiet_s("d") == 0
