# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Which errors a killed plugin explains."""

from tests.soak.following import is_bridge_without_address

TEXT = (
    "failed to set up container networking: failed to create endpoint c5 on n3: remote: {}: failed to set bridge "
    "addr: could not set bridge's mac: {} (code 999, exit status 1 after 0.145 s, /opt/cni/bin/bridge, network lan)"
)


def test_a_bridge_without_an_address() -> None:
    """Only ADD of `bridge`, and only because the bridge has no MAC that it can keep."""
    assert is_bridge_without_address(TEXT.format('plugin type="bridge" failed (add)', "invalid argument"))
    assert not is_bridge_without_address(TEXT.format('plugin type="bridge" failed (add)', "operation not permitted"))
    assert not is_bridge_without_address(TEXT.format('plugin type="ptp" failed (add)', "invalid argument"))
