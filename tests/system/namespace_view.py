# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What iproute2, tc and /proc/sys show of a network namespace with one link, so that two namespaces can be compared.

What Docker changes by design is left out here, each with its reason, and nowhere else.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from cni_bridge_spec import JsonObject, as_object, get_int, get_objects, get_str, get_strings, parse_json

View = Mapping[str, object]
"""Kind of thing → what the namespace has of it."""

BY_DESIGN: Final[Mapping[str, str]] = {
    r"^net/ipv4/(ping_group_range|ip_unprivileged_port_start)$": "Docker lets containers ping and use low ports",
    r"^net/ipv6/conf/[^/]+/disable_ipv6$": "Docker disables IPv6 on links and hosts for which it has no address",
    r"accept_dad$": "staging switches it off, so that plugins need not wait; whether a plugin did so too is unknown",
    r"^net/netfilter/": "counters, which appear when modules are loaded",
    r"^net/ipv[46]/conf/(all|default)/": "copied from the host when the namespace is made",
    r"stable_secret$|fastopen_key$|/flush$": "a secret, or write-only",
}
"""Sysctls that are not compared, and why. Of addresses and routes, these are not compared either:

* broadcast addresses and `nodad`: libnetwork adds the first address of a family in its own way;
* the prefix of an address whose prefix route the plugins removed: Docker receives the prefix of a single host, as
  libnetwork would add the route again;
* link-local addresses and routes of IPv6: they do not exist where Docker disables IPv6;
* an IPv6 route to the link's own address, which the prefix of a single host implies;
* the metric of the default route of an IPv6-only network: before Engine 28 libnetwork does not make that route, and
  ours has a lower priority than any that libnetwork makes later.
"""

_NOT_COMPARED: Final = re.compile("|".join(BY_DESIGN))


def view(run: Callable[..., str], ifname: str) -> View:
    """Read a namespace.

    Args:
        run: Runs a command in it and returns its output.
        ifname: The link's name, which becomes `LINK`; its MAC address becomes `MAC`.
    """

    def show(*command: str) -> tuple[JsonObject, ...]:
        found = parse_json(run("ip", "-json", "-details", *command).encode() or b"[]")
        assert isinstance(found, list)
        return tuple(as_object(item, "ip") for item in found if item)

    (link,) = show("address", "show", "dev", ifname)
    routes = [_route(route, ifname) for family in ("-4", "-6") for route in show(family, *_ALL_ROUTES)]
    found: dict[str, object] = {
        "mtu": get_int(link, "mtu"),
        "flags": sorted(set(get_strings(link, "flags")) & {"PROMISC", "ALLMULTI", "NOARP", "UP"}),
        "addresses": sorted(_address(info) for info in get_objects(link, "addr_info") if not _is_link_local(info)),
        "routes": sorted(route for route in routes if route is not None),
        "rules": sorted(
            str({key: "LINK" if value == ifname else value for key, value in rule.items()})
            for family in ("-4", "-6")
            for rule in show(family, "rule")
        ),
        "neighbours": sorted(
            _plain(run("ip", *kind, "show", "dev", ifname, *only), ifname)
            for kind, only in ((("neighbour",), ("nud", "permanent")), (("neighbour",), ("proxy",)))
        ),
        "qdiscs": _plain(run("tc", "qdisc", "show", "dev", ifname), ifname),
    }
    settings = _settings(run("sh", "-c", "grep -rs '' /proc/sys/net || true"), ifname)
    found["settings of the link"] = {name: value for name, value in settings.items() if "/LINK/" in name}
    found["settings of the namespace"] = {name: value for name, value in settings.items() if "/LINK/" not in name}
    return found


def view_other_end(run: Callable[..., str], run_on_host: Callable[..., str], ifname: str) -> View:
    """Read the link on the host that belongs to a link in a namespace: the other end of a veth, or the parent."""
    number = get_int(_links(run("ip", "-json", "link", "show", "dev", ifname))[0], "link_index")
    links = _links(run_on_host("ip", "-json", "-details", "link", "show"))
    (end,) = (link for link in links if get_int(link, "ifindex") == number)
    port = as_object(as_object(end.get("linkinfo", {}), "linkinfo").get("info_slave_data", {}), "info_slave_data")
    name = get_str(end, "ifname")
    return {
        "master on the host": str(end.get("master")),
        "MTU on the host": get_int(end, "mtu"),
        "port of the bridge": {key: port.get(key) for key in ("hairpin", "isolated", "learning", "flood", "guard")},
        "qdiscs on the host": _plain(run_on_host("tc", "qdisc", "show", "dev", name), name),
    }


def view_beside_link(run: Callable[..., str], ifname: str) -> View:
    """Read what a move to another namespace would lose: further links, packet filter rules, and the like.

    The nat tables have Docker's own rules, for its DNS server, and are left out.
    """
    rules = run("iptables", "-t", "filter", "-S") + run("ip6tables", "-t", "filter", "-S")
    routes = [route.strip() for family in ("-4", "-6") for route in run("ip", family, *_ALL_ROUTES).splitlines()]
    return {
        "links": sorted(get_str(link, "ifname") for link in _links(run("ip", "-json", "link", "show"))),
        "iptables rules": rules.splitlines(),
        "nftables tables": sorted(name for name in run("nft", "list", "tables").splitlines() if " ip" not in name),
        "nftables rules": _if_any(run, "nft", "list", "table", "inet", "fidelity"),
        "routes without a link": sorted(route for route in routes if _has_no_link(route)),
        "next hops": [route for route in routes if route.startswith("nexthop ")],
        "traffic classes": _plain(run("tc", "class", "show", "dev", ifname), ifname),
        "traffic filters": _plain(run("tc", "filter", "show", "dev", ifname), ifname),
    }


def _if_any(run: Callable[..., str], *command: str) -> str:
    return run("sh", "-c", '"$@" 2>&1 || true', "sh", *command)


def _has_no_link(route: str) -> bool:
    return route.split(maxsplit=1)[0] in {"unreachable", "prohibit", "blackhole"}


def _links(printed: str) -> tuple[JsonObject, ...]:
    found = parse_json(printed.encode())
    assert isinstance(found, list)
    return tuple(as_object(item, "ip") for item in found)


_FALLBACK_METRIC: Final = 1025
_ALL_ROUTES: Final = ("route", "show", "table", "all")


def _address(info: JsonObject) -> str:
    return f"{get_str(info, 'local')} {info.get('address', '')} {get_str(info, 'scope')}".replace("  ", " ")


def _is_link_local(info: JsonObject) -> bool:
    return get_str(info, "local").startswith("fe80:")


def _route(route: JsonObject, ifname: str) -> str | None:
    destination, table = get_str(route, "dst"), str(route.get("table", "main"))
    if table == "local" or destination.startswith(("fe80:", "ff00:", "multicast")) or route.get("dev") != ifname:
        return None
    if ":" in destination and "/" not in destination and route.get("protocol") == "kernel":
        return None  # to the link's own address
    if destination == "default" and route.get("metric") == _FALLBACK_METRIC:
        route = {**route, "metric": _FALLBACK_METRIC - 1}
    kept = ("dst", "gateway", "via", "scope", "protocol", "prefsrc", "metric", "type", "flags", "metrics")
    return f"{table} " + " ".join(f"{key}={route[key]}" for key in kept if key in route)


def _plain(text: str, ifname: str) -> str:
    text = re.sub(r"\b8[0-9a-f]{3}:", "ANY:", text)  # the kernel numbers handles that were not given
    return re.sub(
        r"\b(refcnt \d+ ?|direct_packets_stat \d+ ?|qdisc noqueue 0: root ?)", "", text.replace(ifname, "LINK")
    ).strip()


def _settings(text: str, ifname: str) -> Mapping[str, str]:
    lines = (line.removeprefix("/proc/sys/").partition(":") for line in text.splitlines())
    settings = {name.replace(f"/{ifname}/", "/LINK/"): value for name, _, value in lines}
    others = re.compile(r"^net/ipv[46]/(conf|neigh)/(?!LINK/)")
    return {name: value for name, value in settings.items() if not (_NOT_COMPARED.search(name) or others.search(name))}
