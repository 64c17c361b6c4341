# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Options for rates and bursts become capability args in bits."""

import pytest

from cnm_bridge.core.errors import BadOption
from cnm_bridge.core.options.values import bandwidth_args

RATE = "cni.bandwidth.ingress-rate"
BURST = "cni.bandwidth.ingress-burst"


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("800000", 800_000),
        ("800k", 800_000),
        ("800Kbit", 800_000),
        ("1.5M", 1_500_000),
        ("1.5m", 1_500_000),
        ("64ki", 65_536),
        ("2Gbit", 2_000_000_000),
        ("1T", 10**12),
        ("64Ki", 65_536),
        ("1Mibit", 1 << 20),
        ("1000000bit", 1_000_000),
    ],
)
def test_units_of_rates(text: str, bits: int) -> None:
    """Prefixes are powers of 1000, or of 1024 with an i; case does not matter."""
    assert bandwidth_args({RATE: text})["ingressRate"] == bits


@pytest.mark.parametrize(("rate", "burst"), [("1k", 8 * 65_536), ("100M", 10_000_000), ("1000T", 8 * ((1 << 32) - 1))])
def test_the_default_burst(rate: str, burst: int) -> None:
    """It is a tenth of a second at the rate, at least the largest packet, and at most what the plugin accepts."""
    assert bandwidth_args({RATE: rate})["ingressBurst"] == burst


def test_directions_are_independent() -> None:
    """Only requested directions are present."""
    options = {RATE: "1M", BURST: "2M", "cni.bandwidth.egress-rate": "3M", "cni.bandwidth.egress-burst": "4M"}
    assert bandwidth_args(options) == {
        "ingressRate": 1_000_000,
        "ingressBurst": 2_000_000,
        "egressRate": 3_000_000,
        "egressBurst": 4_000_000,
    }
    assert bandwidth_args({"cni.network": "blue"}) == {}


def test_a_burst_that_is_too_large() -> None:
    """The plugin would fail for every container."""
    with pytest.raises(BadOption, match="too large"):
        bandwidth_args({RATE: "1M", BURST: "100G"})
