# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The IPAM section of a call: what is assigned, and what else its result has."""

from dataclasses import dataclass
from ipaddress import ip_interface
from pathlib import Path

from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    JsonValue,
    find_object,
    find_str,
    get_list,
    get_objects,
    get_strings,
)
from cni_ipam_etcd.ranges import IpAddress, RangeSet, parse_ranges
from cni_plugin import Call, CallError, ErrorCode

__all__ = ["Section"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An IPAM section.

    Attributes:
        sets: The range sets.
        requested: The address that is requested of each set, if any.
        routes: The routes of the result.
        dns: The name servers of the result.
    """

    sets: tuple[RangeSet, ...]
    requested: tuple[IpAddress | None, ...]
    routes: tuple[JsonObject, ...]
    dns: JsonObject

    @classmethod
    def of_call(cls, call: Call) -> "Section":
        """Return the section of a call.

        Raises:
            CallError: It is invalid, or an address is requested that it does not have (code 7).
        """
        ipam = find_object(call.config, "ipam") or {}
        try:
            sets = parse_ranges(ipam, get_list(call.runtime_config, "ipRanges"))
            return cls(
                sets=sets,
                requested=_place(_requested(call), sets),
                routes=get_objects(ipam, "routes"),
                dns=_parse_resolv_conf(find_str(ipam, "resolvConf") or ""),
            )
        except JsonError as exc:
            raise CallError(
                ErrorCode.INVALID_CONFIGURATION, f"the IPAM section of {call.name} is invalid: {exc}"
            ) from exc

    def result(self, addresses: tuple[IpAddress, ...]) -> JsonObject:
        """Return the result of ADD: an address of each set."""
        ips: list[JsonValue] = []
        for one, address in zip(self.sets, addresses, strict=True):
            span = one.find_span(address)
            if span is not None:
                ips.append({"address": f"{address}/{span.prefix}", "gateway": str(span.gateway)})
        return {"ips": ips, "routes": list(self.routes), "dns": self.dns}


def _requested(call: Call) -> list[IpAddress]:
    """Return the requested addresses: of CNI_ARGS, of `args` and of the capability `ips`, as host-local reads them."""
    cni = find_object(find_object(call.config, "args") or {}, "cni") or {}
    texts = [text for text in call.args.get("IP", "").split(",") if text]
    texts += [*get_strings(cni, "ips"), *get_strings(call.runtime_config, "ips")]
    try:
        return list(dict.fromkeys(ip_interface(text).ip for text in texts))
    except ValueError as exc:
        raise JsonError(f"a requested address: {exc}") from exc


def _place(wanted: list[IpAddress], sets: tuple[RangeSet, ...]) -> tuple[IpAddress | None, ...]:
    """Return the address that is requested of each set."""
    left = list(wanted)
    found = []
    for one in sets:
        chosen = next((address for address in left if one.find_span(address)), None)
        if chosen is not None:
            left.remove(chosen)
        found.append(chosen)
    if left:
        raise JsonError(
            f"{left[0]} is requested, but cannot be assigned: it is in none of {', '.join(one.text for one in sets)}, "
            "a gateway, or excluded; or a second address of the same set"
        )
    return tuple(found)


def _parse_resolv_conf(path: str) -> JsonObject:
    """Return the name servers of a file (resolv.conf(5)) as CNI's `dns`; of several `search`, the last one counts."""
    dns: dict[str, JsonValue] = {}
    servers: list[str] = []
    options: list[str] = []
    try:
        lines = Path(path).read_text("utf-8", "replace").splitlines() if path else []
    except OSError as exc:
        raise JsonError(f"resolvConf {path}: {exc.strerror}") from exc
    for line in lines:
        match line.split():
            case ["nameserver", server, *_]:
                servers.append(server)
            case ["domain", domain, *_]:
                dns["domain"] = domain
            case ["search", *domains]:
                dns["search"] = domains
            case ["options", *words]:
                options += words
    lists: dict[str, list[str]] = {"nameservers": servers, "options": options}
    return {**dns, **{key: words for key, words in lists.items() if words}}
