# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A program that prints what a container sees of its network, as one JSON object of texts.

It runs in the container's network and host name, with its `/etc/hosts` and `/etc/resolv.conf`, but with the machine's C
library and iproute2, which the image `busybox` has not: names are looked up as in an image of Debian.

    python inside.py NAME…        names to look up, beside the container's own
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject, find_object, get_objects, get_str, get_strings, parse_json

_LINK: Final = ("mtu", "operstate", "qdisc", "txqlen", "group")
_ADDRESS: Final = ("scope", "tentative", "dadfailed", "deprecated", "dynamic", "noprefixroute", "nodad", "label")
_ROUTE: Final = ("type", "dst", "gateway", "via", "dev", "scope", "protocol", "prefsrc", "metric", "flags", "metrics")
_LEFT_OUT: Final = ("stable_secret", "fastopen_key", "flush", "nf_conntrack_count")
"""Secrets, a file for writing, and a counter."""


def main(names: Sequence[str]) -> None:
    """Print the object."""
    found = dict([*_links(), *_routes(), *_sysctls(), *_files(), *_lookups([socket.gethostname(), *names])])
    json.dump({"host name": socket.gethostname(), **found}, sys.stdout)


def _ip(*command: str) -> Sequence[JsonObject]:
    done = subprocess.run(("ip", "-json", "-details", *command), capture_output=True, check=True)
    return [item for item in get_objects({"found": parse_json(done.stdout or b"[]")}, "found") if item]


def _links() -> Iterator[tuple[str, str]]:
    for link in _ip("address"):
        name = get_str(link, "ifname")
        yield f"link {name}: flags", " ".join(sorted(get_strings(link, "flags")))
        yield f"link {name}: mac", str(link["address"])
        yield f"link {name}: kind", str((find_object(link, "linkinfo") or {}).get("info_kind"))
        for key in _LINK:
            yield f"link {name}: {key}", str(link.get(key))
        for altname in get_strings(link, "altnames"):
            yield f"link {name}: altname {altname}", "yes"
        for info in get_objects(link, "addr_info"):
            # The kernel checks its own link-local address for a second or two, whatever the driver does.
            left_out = ("tentative",) if get_str(info, "local").startswith("fe80:") else ()
            kept = " ".join(f"{key}={info[key]}" for key in _ADDRESS if key in info and key not in left_out)
            yield f"address {name}: {info['local']}/{info['prefixlen']}", kept


def _routes() -> Iterator[tuple[str, str]]:
    for family in ("4", "6"):
        for route in _ip(f"-{family}", "route", "show", "table", "all"):
            if route.get("table") == "local" and str(route["dst"]).startswith("fe80:"):
                continue  # comes when that check ends
            kept = " ".join(f"{key}={route[key]}" for key in _ROUTE if route.get(key) not in (None, []))
            yield f"route {family} {route.get('table', 'main')}: {kept}", "yes"
        for rule in _ip(f"-{family}", "rule"):
            yield f"rule {family}: {rule}", "yes"


def _sysctls() -> Iterator[tuple[str, str]]:
    for directory, _, files in os.walk("/proc/sys/net"):
        for file in files:
            path = Path(directory, file)
            if file not in _LEFT_OUT:
                with suppress(OSError, UnicodeDecodeError):
                    yield f"sysctl {path.relative_to('/proc/sys')}", " ".join(path.read_text().split())


def _files() -> Iterator[tuple[str, str]]:
    for name in ("hosts", "resolv.conf"):
        for line in Path("/etc", name).read_text("utf-8").splitlines():
            if line.strip():
                yield f"{name}: {' '.join(line.split())}", "yes"


def _lookups(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    found = set()
    for name in names:
        addresses = []
        with suppress(OSError):
            addresses = [str(info[4][0]) for info in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)]
        # sorted: Docker joins the networks of a new container in any order
        yield f"look-up of {name}", " ".join(sorted(addresses))
        found.update(addresses)
    for address in found:
        with suppress(OSError):
            yield f"reverse look-up of {address}", socket.gethostbyaddr(address)[0]


if __name__ == "__main__":
    main(sys.argv[1:])
