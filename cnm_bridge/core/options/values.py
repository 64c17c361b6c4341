# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Parses the options whose values have a syntax of their own: addresses, rates and bursts, and the identity; pure.

Rates become the capability `bandwidth` (bits per second, bits): CNI CONVENTIONS "bandwidth"; the limits are those of
the plugin `bandwidth`.

`cni.identity-args` is a template that says where in `args` plugins find names and labels of a container. Each
orchestrator has its own key there, and plugins read those that they know. Calico, for example, takes labels only from
`args["org.apache.mesos"].network_info.labels.labels`, a list of objects with `key` and `value`.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, ip_address, ip_interface
from typing import Final

from cni_bridge_spec import JsonError, JsonObject, JsonValue, as_object, parse_json
from cni_bridge_state import IdentityRequest
from cnm_bridge.core.errors import BadOption

WantedAddress = IPv4Address | IPv6Address
"""A requested address; an `ip_interface` if its prefix length is requested as well."""

IPS: Final = "cni.ips"
_SLASH: Final = "/"
_ALL: Final = IPv4Address("255.255.255.255")
_SMALLEST: Final = 31


def parse_ips(text: str) -> tuple[WantedAddress, ...]:
    """Return the addresses of the option."""
    addresses: list[WantedAddress] = []
    for part in text.split(","):
        word = part.strip()
        try:
            address = ip_interface(word) if _SLASH in word else ip_address(word)
        except ValueError as exc:
            raise BadOption(
                IPS,
                f"{word!r} is not an address; give one or more with commas, such as 10.1.0.9 or 10.1.0.9/24,fd00::9/64",
            ) from exc
        why = _why_unassignable(address)
        if why is not None:
            raise BadOption(IPS, f"{word} cannot be assigned to a container: it is {why}")
        if any(_without_prefix(address) == _without_prefix(other) for other in addresses):
            raise BadOption(IPS, f"has {word} twice")
        addresses.append(address)
    return tuple(addresses)


def _without_prefix(address: WantedAddress) -> WantedAddress:
    return ip_address(str(address).partition(_SLASH)[0])


def _why_unassignable(address: WantedAddress) -> str | None:
    """Return the reason why a link cannot have an address, None if it can."""
    alone = _without_prefix(address)
    if isinstance(alone, IPv6Address):
        if alone.scope_id is not None:
            return "an address with a scope ID, valid on one link of this host"
        if alone.ipv4_mapped is not None:
            return f"the IPv4-mapped form of {alone.ipv4_mapped}"
    elif isinstance(address, IPv4Interface) and alone in _ends(address.network):
        kind = "network" if alone == address.network.network_address else "broadcast"
        return f"the {kind} address of {address.network}"
    kinds = {
        "the unspecified address": alone.is_unspecified,
        "a loopback address": alone.is_loopback,
        "a multicast address": alone.is_multicast,
        "the broadcast address": alone == _ALL,
    }
    return next((kind for kind, applies in kinds.items() if applies), None)


def _ends(network: IPv4Network) -> tuple[IPv4Address, ...]:
    """Return the network and broadcast address; /31 and /32 networks have none (RFC 3021)."""
    return (network.network_address, network.broadcast_address) if network.prefixlen < _SMALLEST else ()


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

    It has rate and burst of each requested direction.
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


_IDENTITY: Final = "cni.identity"
_IDENTITY_LABELS: Final = "cni.identity-labels"
_IDENTITY_REQUIRED: Final = "cni.identity-required"
IDENTITY_ARGS: Final = "cni.identity-args"
IDENTITY_OPTIONS: Final = (_IDENTITY, _IDENTITY_LABELS, _IDENTITY_REQUIRED, IDENTITY_ARGS)
_NO_IDENTITY: Final = "none"
_DOCKER: Final = "docker"
_BOOLEANS: Final = frozenset({"true", "false"})
_LABELS: Final = "{labels}"
TEMPLATE_WORDS: Final = ("{id}", "{name}", "{image}")
_ANY_WORD: Final = re.compile(r"\{[a-z]*\}")


def parse_identity(options: Mapping[str, str]) -> IdentityRequest | None:
    """Return whether and how the plugins receive the identity of the container; None if they do not."""
    text = options.get(_IDENTITY, _NO_IDENTITY)
    required = options.get(_IDENTITY_REQUIRED, "false")
    if required not in _BOOLEANS:
        raise BadOption(_IDENTITY_REQUIRED, f"{required!r} is not true or false")
    if text == _NO_IDENTITY:
        for option in IDENTITY_OPTIONS[1:]:
            if option in options:
                raise BadOption(option, f"has no effect without {_IDENTITY}={_DOCKER}")
        return None
    if text != _DOCKER:
        raise BadOption(_IDENTITY, f"{text!r} is unknown; give {_NO_IDENTITY} or {_DOCKER}")
    patterns = tuple(pattern.strip() for pattern in options.get(_IDENTITY_LABELS, "").split(",") if pattern.strip())
    return IdentityRequest(labels=patterns, is_required=required == "true")


def parse_identity_args(text: str) -> JsonObject:
    """Parse a template for `args`."""
    try:
        template = as_object(parse_json(text.encode()), "the template")
        fill_template(template, dict.fromkeys(TEMPLATE_WORDS, ""), [])
    except JsonError as exc:
        raise BadOption(IDENTITY_ARGS, f"is not a template: {exc}") from exc
    return template


def fill_template(value: JsonValue, words: Mapping[str, str], labels: list[JsonValue]) -> JsonValue:
    """Return a part of a template with a container's values.

    Raises:
        JsonError: A word in braces is unknown, or the labels are a part of a text.
    """
    if isinstance(value, str):
        if value == _LABELS:
            return labels
        unknown = next((word for word in _ANY_WORD.findall(value) if word not in words), None)
        if unknown is not None:
            known = ", ".join((*words, f"{_LABELS} alone"))
            raise JsonError(f"{unknown} in {value!r} is not one of {known}")
        return _ANY_WORD.sub(lambda match: words[match[0]], value)
    if isinstance(value, Mapping):
        return {key: fill_template(item, words, labels) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill_template(item, words, labels) for item in value]
    return value
