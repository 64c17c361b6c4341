# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Moves a driver's link into the container and configures it as libnetwork does, with iproute2.

Two processes of `ip` take less time than the import of a netlink library, in a program that starts for each container.
"""

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address, ip_interface, ip_network
from pathlib import Path
from typing import Final, TypeVar

from cni_invoker.documents.jsontypes import JsonObject, JsonValue, as_object, get_objects, parse_json
from cni_plugin import Call, CallError, ErrorCode, run_in_namespace

__all__ = ["Routes", "is_gone", "place", "render_commands", "show", "take_out", "without_second_default"]

T = TypeVar("T")

_NO_LINK: Final = "Cannot find device"

Routes = Sequence[tuple[str, str | None]]
"""Destination, and next hop or None for a destination on the link; in the order in which they are added."""


def place(
    call: Call, link: str, *, mark: str, interface: Mapping[str, str], routes: Routes
) -> tuple[JsonObject, Routes]:
    """Move a link from this namespace into the container's, and configure it there.

    A default route is left out if the container has one of that family: the first of several networks has the gateway.

    Args:
        call: The call, with the container's namespace and the link's name there.
        link: Its name here.
        mark: An alternative name, by which `take_out` finds it whatever the container calls it.
        interface: `Address`, `AddressIPv6` and `MacAddress`, each possibly empty.
        routes: The routes through it.

    Returns:
        What `ip -json link` shows of it, and the routes that it has.

    Raises:
        CallError: The namespace cannot be entered (code 4), a value is invalid, or the kernel refuses.
    """
    render_commands(mark, call.ifname, interface, routes)  # an invalid value is found before anything changes

    def configure() -> tuple[JsonObject, Routes]:
        with suppress(FileNotFoundError):  # without IPv6 in the kernel; it keeps the value when the link is renamed
            Path(f"/proc/sys/net/ipv6/conf/{link}/disable_ipv6").write_text("0", "ascii")
        kept = without_second_default(routes, _read("route"), _read("ipv6_route"))
        shown = _run("ip", "-j", "-batch", "-", stdin=render_commands(mark, call.ifname, interface, kept))
        return _first(shown), kept

    namespace = os.open(call.netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        moves = (f"property add dev {link} altname {mark}", f"set dev {link} netns /proc/{os.getpid()}/fd/{namespace}")
        _run("ip", "-batch", "-", stdin="".join(f"link {move}\n" for move in moves))
    finally:
        os.close(namespace)
    return call.in_namespace(configure)


def without_second_default(routes: Routes, ipv4: str, ipv6: str) -> Routes:
    """Return the routes without default routes of a family that has one; pure.

    Args:
        routes: The routes.
        ipv4: The content of `/proc/net/route`.
        ipv6: The content of `/proc/net/ipv6_route`.
    """
    taken = set()
    for fields in map(str.split, ipv4.splitlines()[1:]):
        if fields[1] == fields[7] == "00000000":  # destination and mask
            taken.add("0.0.0.0/0")
    for fields in map(str.split, ipv6.splitlines()):
        if fields[1] == "00" and fields[-1] != "lo":  # the length of the prefix; on `lo` the kernel's own are refusals
            taken.add("::/0")
    return [route for route in routes if route[0] not in taken]


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


def show(call: Call) -> tuple[str, ...]:
    """Return the addresses of the call's link in the container, e.g. `10.1.0.9/24`.

    Raises:
        CallError: There is no such link, or no such namespace.
    """
    shown = call.in_namespace(lambda: _run("ip", "-j", "address", "show", "dev", call.ifname))
    return tuple(f"{one.get('local')}/{one.get('prefixlen')}" for one in get_objects(_first(shown), "addr_info"))


def take_out(link: str, mark: str, netns: str) -> None:
    """Move a link from the container back into this namespace, down and under its former name, as libnetwork does.

    If it or its namespace is gone, nothing is done. A link of the container's own is never touched.

    Raises:
        CallError: The kernel refuses.
    """
    if not netns or not Path(netns).exists():
        return
    # It is renamed before the move: the host's network services would see an eth0 appear.
    moves = (f"{mark} down", f"{mark} name {link}", f"{mark} netns /proc/{os.getpid()}/ns/net")
    commands = "".join(f"link set dev {move}\n" for move in moves)
    try:
        _inside(netns, lambda: _run("ip", "-batch", "-", stdin=commands))
    except CallError as exc:
        if _NO_LINK not in exc.details:
            raise
    else:
        _run("ip", "link", "property", "del", "dev", link, "altname", mark)


def is_gone(link: str, mark: str, netns: str) -> bool:
    """Return whether a link is neither in this namespace nor in the container's, as after the end of that namespace.

    Raises:
        CallError: The kernel does not say.
    """
    if _exists(link) or _exists(mark):
        return False
    return not netns or not Path(netns).exists() or not _inside(netns, lambda: _exists(mark))


def _exists(name: str) -> bool:
    try:
        _run("ip", "link", "show", "dev", name)
    except CallError as exc:
        if _NO_LINK not in exc.details and "does not exist" not in exc.details:
            raise
        return False
    return True


def _inside(netns: str, work: Callable[[], T]) -> T:
    try:
        return run_in_namespace(netns, work)
    except OSError as exc:
        raise CallError(ErrorCode.INVALID_ENVIRONMENT, f"the namespace {netns} cannot be entered: {exc}") from exc


def _read(name: str) -> str:
    """Return a table of this thread's namespace, empty if the kernel does not have it."""
    try:
        return Path(f"/proc/thread-self/net/{name}").read_text("ascii")
    except FileNotFoundError:
        return ""


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
