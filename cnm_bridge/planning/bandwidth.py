# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Rates and bursts as a user writes them, and as the capability `bandwidth` wants them (bits per second, bits); pure.

Source: CNI CONVENTIONS "bandwidth"; the limits are those of the plugin `bandwidth`.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from cnm_bridge.errors import BadOption
from spec import JsonObject

__all__ = ["BANDWIDTH_OPTIONS", "bandwidth_args"]

_OPTION: Final = "cni.bandwidth."
_DIRECTIONS: Final = ("ingress", "egress")
BANDWIDTH_OPTIONS: Final = frozenset(f"{_OPTION}{way}-{what}" for way in _DIRECTIONS for what in ("rate", "burst"))

_VALUE: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)([kmgt]i?)?(?:bit)?", re.IGNORECASE)
"""In any case: `docker run --network name=N,driver-opt=…` makes lower case of all it is given (20.10)."""
_FACTORS: Final = {
    letter + binary: base**power
    for binary, base in (("", 1000), ("i", 1024))
    for letter, power in (("k", 1), ("m", 2), ("g", 3), ("t", 4))
}

_BURST_S: Final = 0.1
"""How much of the rate may pass at once unless the user says."""
_SMALLEST_BURST: Final = 8 * (64 << 10)
"""The kernel hands over packets of up to 64 KiB at once; one that is larger than the burst never passes."""
_LARGEST_RATE: Final = (1 << 63) - 1
"""Plugins hold a rate in 64 bits, older ones with a sign."""
_LARGEST_BURST: Final = 8 * ((1 << 32) - 1)
"""The plugin holds a burst in bytes, in 32 bits."""


def bandwidth_args(options: Mapping[str, str]) -> JsonObject:
    """Return the value of the capability `bandwidth`, e.g. `{"ingressRate": 1000000, "ingressBurst": 524288}`.

    Args:
        options: The options; those that are not about bandwidth are not looked at.

    Returns:
        Both keys of a direction or none of it; empty if nothing is asked for.

    Raises:
        BadOption: A value is none, or a burst has no rate.
    """
    found: dict[str, int] = {}
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
                rate_option, f"{options[rate_option]} is too large; the most is {_LARGEST_RATE} bits per second"
            )
        if burst is None:
            burst = min(max(int(rate * _BURST_S), _SMALLEST_BURST), _LARGEST_BURST)
        if burst > _LARGEST_BURST:
            raise BadOption(burst_option, f"{options[burst_option]} is too large; the most is {_LARGEST_BURST} bits")
        found |= {f"{way}Rate": rate, f"{way}Burst": burst}
    return found


def _parse(option: str, text: str | None) -> int | None:
    if text is None:
        return None
    found = _VALUE.fullmatch(text)
    bits = int(Decimal(found[1]) * _FACTORS.get((found[2] or "").lower(), 1)) if found else 0
    if not bits:
        unit = "bits" if option.endswith("burst") else "bits per second"
        raise BadOption(option, f"{text!r} is not a number of {unit}, such as 500k, 10M, 1.5G or 64Ki")
    return bits
