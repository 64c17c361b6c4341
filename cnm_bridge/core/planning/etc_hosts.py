# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A container's own name in its /etc/hosts; pure.

Docker adds a line for each address of an endpoint, `ADDRESS<tab>NAMES` (moby `libnetwork/etchosts`). Engines 28.0 to
28.5 take an IPv4 address that a driver or an IPAM driver has given for an IPv6 address, because Go holds it in 16 bytes
(moby `libnetwork/endpoint.go`, getEtcHostsAddrs):

* The line has `::ffff:10.1.0.2` instead of `10.1.0.2`, which programs cannot reach.
* In a container without IPv6 there is no line.
* Docker removes a line with that text only. So when the endpoint leaves, its corrected line must be removed here.
"""

from collections.abc import Collection, Iterable
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Final

from cni_bridge_spec import JsonError, find_object, find_str
from cnm_bridge.core.planning.container_file import ContainerRecord, FileEdit

_IPV6_LOOPBACK: Final = "::1\t"
"""What the file of a container with IPv6 has: Docker's line for `localhost`."""
_NO_NAME: Final = "the engine's record of the container, which has its host name, cannot be read"


def correct_addresses(text: str, container: ContainerRecord, *, address: IPv4Address | None) -> FileEdit:
    """Return the file with the container's IPv4 addresses as such.

    Args:
        text: The content.
        container: What dockerd has written about the container.
        address: The IPv4 address that Docker knows of the endpoint, None if it knows none.
    """
    names = _own_names(container)
    if names is None:
        return FileEdit(obstacle=_NO_NAME)
    lines = [_correct(line, names) for line in text.split("\n")]
    if address is not None and not any(line.startswith(_IPV6_LOOPBACK) for line in lines):
        own = f"{address}\t{names}"
        if own not in lines:
            lines[-1:] = [*filter(None, lines[-1:]), own, ""]  # the last one is empty, if its line break is there
    return _with_lines(text, lines)


def remove_addresses(text: str, container: ContainerRecord, *, addresses: Collection[str]) -> FileEdit:
    """Return the file without the lines of the container's own name and these addresses."""
    names = _own_names(container)
    if names is None:
        return FileEdit(obstacle=_NO_NAME)
    own = {f"{address}\t{names}" for address in addresses}
    return _with_lines(text, [line for line in text.split("\n") if line not in own])


def _with_lines(text: str, lines: Iterable[str]) -> FileEdit:
    changed = "\n".join(lines)
    return FileEdit(content=None if changed == text else changed)


def _correct(line: str, names: str) -> str:
    address, _, name = line.partition("\t")
    if name != names:
        return line
    try:
        ipv4 = IPv6Address(address).ipv4_mapped
    except AddressValueError:
        return line
    return line if ipv4 is None else f"{ipv4}\t{names}"


def _own_names(container: ContainerRecord) -> str | None:
    """Return the names that Docker gives the container's addresses: moby `Sandbox.makeHostsRecs`."""
    try:
        config = find_object(container.config or {}, "Config") or {}
        host, domain = find_str(config, "Hostname"), find_str(config, "Domainname")
    except JsonError:  # not dockerd's
        return None
    if not host:
        return None
    name = f"{host}.{domain}" if domain else host
    short, dot, _ = name.partition(".")
    return f"{name} {short}" if dot else name
