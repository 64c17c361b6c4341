# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Moves a driver's link into the container and configures it as libnetwork does, with iproute2.

Two processes of `ip` take less time than the import of a netlink library, in a program that starts for each container.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, as_object, get_objects, parse_json
from cni_invoker.plugin import CallError, ErrorCode

__all__ = ["Routes", "place", "render_commands", "show", "take_out"]

Routes = Sequence[tuple[str, str | None]]
"""Destination, and next hop or None for a destination on the link; in the order in which they are added."""

_IN_NAMESPACE = '[ ! -e "$1" ] || echo 0 >"$1"; exec ip -j -batch -'
"""The sysctl is one that IPv6 addresses need; it does not exist if the kernel has no IPv6."""


def place(link: str, *, mark: str, netns: str, ifname: str, interface: Mapping[str, str], routes: Routes) -> JsonObject:
    """Move a link from this namespace into the container's, and configure it there.

    Args:
        link: Its name here.
        mark: An alternative name, by which `take_out` finds it whatever the container calls it.
        netns: Path of the container's namespace.
        ifname: Its name there.
        interface: `Address`, `AddressIPv6` and `MacAddress`, each possibly empty.
        routes: The routes through it.

    Returns:
        What `ip -json link` shows of it.

    Raises:
        CallError: The namespace is this one or none (code 4), a value is invalid, or the kernel refuses.
    """
    _require_other_namespace(netns)
    commands = render_commands(mark, ifname, interface, routes)
    _run("ip", "link", "property", "add", "dev", link, "altname", mark)
    _run("ip", "link", "set", "dev", link, "netns", netns)
    sysctl = f"/proc/sys/net/ipv6/conf/{link}/disable_ipv6"  # the kernel keeps its value when the link is renamed
    return _first(_run("nsenter", f"--net={netns}", "sh", "-c", _IN_NAMESPACE, "sh", sysctl, stdin=commands))


def render_commands(mark: str, ifname: str, interface: Mapping[str, str], routes: Routes) -> str:
    """Return the lines for `ip -batch` that configure a link, in libnetwork's order; pure.

    Raises:
        CallError: The driver has answered something that is not an address.
    """
    try:
        addresses = [ip_interface(interface[key]) for key in ("Address", "AddressIPv6") if interface[key]]
        ways = [(ip_network(dst, strict=False), hop and ip_address(hop)) for dst, hop in routes]
        mac = bytes.fromhex(interface["MacAddress"].replace(":", "")).hex(":")
    except ValueError as exc:
        raise CallError(ErrorCode.INTERNAL, f"the driver's answer is invalid: {exc}") from exc
    lines = [f"link set dev {mark} name {ifname}"]
    lines += [f"link set dev {ifname} address {mac}"] if mac else []
    lines += [f"address add {one} dev {ifname}{' nodad' if one.version == 6 else ''}" for one in addresses]  # noqa: PLR2004
    lines.append(f"link set dev {ifname} up")
    for dst, hop in ways:
        lines.append(f"route add {dst} {f'via {hop} ' if hop else ''}dev {ifname}")
    return "".join(f"{line}\n" for line in (*lines, f"link show dev {ifname}"))


def show(netns: str, ifname: str) -> tuple[str, ...]:
    """Return the addresses of a link in the container, e.g. `10.1.0.9/24`.

    Raises:
        CallError: There is no such link, or no such namespace.
    """
    shown = _run("nsenter", f"--net={netns}", "ip", "-j", "address", "show", "dev", ifname)
    return tuple(f"{one.get('local')}/{one.get('prefixlen')}" for one in get_objects(_first(shown), "addr_info"))


def take_out(link: str, mark: str, netns: str) -> None:
    """Move a link from the container back into this namespace, down and under its former name, as libnetwork does.

    If it or its namespace is gone, nothing is done. A link of the container's own is never touched.

    Raises:
        CallError: The kernel refuses.
    """
    if not netns or not Path(netns).exists():
        return
    _require_other_namespace(netns)
    # It is renamed before the move: the host's network services would see an eth0 appear.
    moves = (f"{mark} down", f"{mark} name {link}", f"{mark} netns /proc/{os.getpid()}/ns/net")
    commands = "".join(f"link set dev {move}\n" for move in moves)
    try:
        _run("nsenter", f"--net={netns}", "ip", "-batch", "-", stdin=commands)
    except CallError as exc:
        if "Cannot find device" not in exc.details:
            raise
    else:
        _run("ip", "link", "property", "del", "dev", link, "altname", mark)


def _require_other_namespace(netns: str) -> None:
    try:
        given, own = Path(netns).stat(), Path("/proc/self/ns/net").stat()
    except OSError as exc:
        raise CallError(ErrorCode.INVALID_ENVIRONMENT, f"CNI_NETNS: {exc}") from exc
    if (given.st_dev, given.st_ino) == (own.st_dev, own.st_ino):
        raise CallError(ErrorCode.INVALID_ENVIRONMENT, f"CNI_NETNS: {netns} is the host's namespace")


def _first(shown: bytes) -> JsonObject:
    values: JsonValue = parse_json(shown or b"[{}]")
    return as_object(values[0] if isinstance(values, list) else values, "a link")


def _run(*command: str, stdin: str = "") -> bytes:
    ended = subprocess.run(
        command, input=stdin.encode(), capture_output=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )
    if ended.returncode:
        words = " ".join(ended.stderr.decode("utf-8", "replace").split())
        raise CallError(ErrorCode.INTERNAL, f"{' '.join(command[:4])} … failed", words)
    return ended.stdout
