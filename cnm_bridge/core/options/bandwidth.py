# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Converts the user's rates and bursts to the capability `bandwidth` (bits per second, bits); pure.

Source: CNI CONVENTIONS "bandwidth"; the limits are those of the plugin `bandwidth`.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from cni_bridge_spec import JsonObject
from cnm_bridge.core.errors import BadOption

_OPTION: Final = "cni.bandwidth."
_DIRECTIONS: Final = ("ingress", "egress")
BANDWIDTH_OPTIONS: Final = frozenset(f"{_OPTION}{way}-{what}" for way in _DIRECTIONS for what in ("rate", "burst"))

_VALUE: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)([kmgt]i?)?(?:bit)?", re.IGNORECASE)
"""Case-insensitive, because `docker run --network name=N,driver-opt=…` converts options to lower case."""
_FACTORS: Final = {
    letter + binary: base**power
    for binary, base in (("", 1000), ("i", 1024))
    for letter, power in (("k", 1), ("m", 2), ("g", 3), ("t", 4))
}

_BURST_S: Final = 0.1
"""The default burst, in seconds of the rate."""
_SMALLEST_BURST: Final = 8 * (64 << 10)
"""The kernel passes packets of up to 64 KiB; a packet larger than the burst is always dropped."""
_LARGEST_RATE: Final = (1 << 63) - 1
"""Plugins store a rate in 64 bits, older ones in a signed number."""
_LARGEST_BURST: Final = 8 * ((1 << 32) - 1)
"""The plugin stores a burst in bytes, in 32 bits."""


def bandwidth_args(options: Mapping[str, str]) -> JsonObject:
    """Return the value of the capability `bandwidth`, e.g. `{"ingressRate": 1000000, "ingressBurst": 524288}`.

    Args:
        options: All options; those that are not about bandwidth are ignored.

    Returns:
        Rate and burst of each requested direction; empty if none is requested.

    Raises:
        BadOption: A value is invalid, or a burst has no rate.
    """
    limits: dict[str, int] = {}
    for way in _DIRECTIONS:
        rate_option, burst_option = f"{_OPTION}{way}-rate", f"{_OPTION}{way}-burst"
        rate = _parse(rate_option, options.get(rate_option))
        burst = _parse(burst_option, options.get(burst_option))
        if rate is None:
            if burst is not None:
                raise BadOption(burst_option, f"has no effect without {rate_option}")
            continue
        if rate > _LARGEST_RATE:
            raise BadOption(
                rate_option, f"{options[rate_option]} is too large; the maximum is {_LARGEST_RATE} bits per second"
            )
        if burst is None:
            burst = min(max(int(rate * _BURST_S), _SMALLEST_BURST), _LARGEST_BURST)
        if burst > _LARGEST_BURST:
            raise BadOption(burst_option, f"{options[burst_option]} is too large; the maximum is {_LARGEST_BURST} bits")
        limits |= {f"{way}Rate": rate, f"{way}Burst": burst}
    return limits


def _parse(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    match = _VALUE.fullmatch(text)
    bits = int(Decimal(match[1]) * _FACTORS.get((match[2] or "").lower(), 1)) if match else 0
    if not bits:
        unit = "bits" if option.endswith("burst") else "bits per second"
        lowered = " (docker run writes options in lower case)" if text.lower() == text else ""
        raise BadOption(option, f"{text!r}{lowered} is not a number of {unit}, such as 500k, 10M, 1.5G or 64Ki")
    return bits
