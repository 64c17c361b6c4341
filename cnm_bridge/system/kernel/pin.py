# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Prepares a container's sandbox for plugins that run in it, and finishes the link that they made.

Each call runs completely in one short-lived thread. The *pin* is a bind mount of the sandbox. The plugins find the
sandbox by it, and it keeps link and addresses until DEL when Docker has removed its own mount.

Some settings that new links start with are changed meanwhile. The container may be running, so they get their values
back, also if the daemon is killed in between: the values are in a file beside the pin before the first one is changed.
Like the sandbox, the file does not survive a reboot. It exists until the link is marked: while it does, plugins may
have made one that is not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from ipaddress import IPv6Interface
from pathlib import Path
from typing import Final, Self

from cnm_bridge.core.errors import LinkMissing, NamespaceMissing, attempt
from cnm_bridge.core.link.plan_sandbox import is_left_to_libnetwork, sysctls_without_ipv6
from cnm_bridge.core.link_state import (
    IPV6_LINK_LOCAL,
    SCOPE_LINK,
    Address,
    IpInterface,
    Route,
    Snapshot,
    Sysctl,
    without_announced,
)
from cnm_bridge.system.kernel.host import Host, in_thread
from cnm_bridge.system.kernel.netlink.addresses import add_addresses, find_addresses
from cnm_bridge.system.kernel.netlink.links import (
    Link,
    add_altname,
    find_link,
    find_link_by_altname,
    list_links,
    set_mac,
)
from cnm_bridge.system.kernel.netlink.routes import find_plain_routes, remove_announced_defaults, remove_route
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.netns import make_mount_point, namespace_id, open_namespace, pin_namespace
from cnm_bridge.system.kernel.sysctl import has_ipv6, is_ipv6_disabled, read_setting, write_ipv6, write_setting

_IPV6: Final = 6
ACCEPT_DAD: Final = "net/ipv6/conf/default/accept_dad"
_FOR_PLUGINS: Final = {
    ACCEPT_DAD: "0",
    "net/ipv6/conf/default/disable_ipv6": "0",
    "net/ipv6/conf/lo/disable_ipv6": "0",
}
"""`ptp` and `macvlan` wait up to 2 s for duplicate address detection, and with IPv6 disabled (`--sysctl
net.ipv6.conf.all.disable_ipv6=1`) no plugin can add an IPv6 address. All that delegate IPAM enable it on `lo`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """What the link must be like, beyond what the plugins made.

    Attributes:
        mac: Its MAC, None to leave it unchanged.
        sysctls: Its settings, which override those of the plugins.
        without_defaults: Whether to remove all its default routes, because the network is internal.
        families: The address families (4, 6) whose default route libnetwork adds again.
        addresses: Addresses that it has besides those of the plugins, as Docker adds them to a link that it moves.
        keeps_ipv6: Whether IPv6 stays on even if the plugins configured none, for router advertisements.
        without_ipv6: Whether IPv6 is disabled whatever the plugins configured; always, if it is disabled on all links
            of the sandbox (`net.ipv6.conf.all.disable_ipv6=1`). Then all else of IPv6 here does not count.
    """

    mac: str | None = None
    sysctls: tuple[Sysctl, ...] = ()
    without_defaults: bool = False
    families: frozenset[int] = frozenset()
    addresses: tuple[IpInterface, ...] = ()
    keeps_ipv6: bool = False
    without_ipv6: bool = False

    def in_this_namespace(self, ifname: str) -> Self:
        """Return what the link `ifname` must be like in the namespace of the calling thread."""
        if not (self.without_ipv6 or is_ipv6_disabled()):
            return self
        return replace(
            self,
            without_ipv6=True,
            sysctls=sysctls_without_ipv6(ifname, self.sysctls),
            addresses=tuple(address for address in self.addresses if address.version != _IPV6),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """The pin of one sandbox, and the link that plugins make in it.

    Every call is idempotent and may be repeated after an interruption at any point. It raises `KernelError` if the
    kernel refuses. Calls for one pin must not run concurrently.

    Attributes:
        ifname: The name that the plugins give the link.
        altname: The alternative name by which the finished link is found, at most 127 bytes; unique.
    """

    host: Host
    path: Path
    ifname: str
    altname: str

    def prepare(self) -> None:
        """Ensure that there is a file for the pin; missing parent directories are created with access for root only."""
        with attempt("make", str(self.path)):
            make_mount_point(self.path)  # as quick as the file of a running plugin, which is also made without a thread

    @in_thread
    def make(self, sandbox: Path) -> bool:
        """Mount a sandbox at the pin as well, and prepare it for plugins that make a link in it.

        Return False if they cannot: the sandbox does not exist, is the host namespace, or has a link of that name.
        Duplicate address detection is off and IPv6 is on for links that are made in it, until `finish` or `find`, also
        if that is called by the next run of the daemon.
        """
        try:
            with attempt("pin", str(sandbox)), open_namespace(sandbox) as fd:
                if namespace_id(fd) == self.host.id:
                    return False
                pin_namespace(fd, self.path)
                self.host.enter(fd)
                with self.host.netlink() as netlink:
                    if find_link(netlink, self.ifname) is not None:
                        return False
                LinkDefaults(self.path).change()
                return True
        except NamespaceMissing:
            return False

    @in_thread
    def finish(self, wanted: Finish) -> Snapshot:
        """Restore the sandbox's settings, set up the link that plugins made, and mark it with its alternative name.

        The default routes that libnetwork adds for the gateway endpoint are removed, because it adds them exclusively.
        Return the link with its addresses and all its routes, including the removed ones, and the settings that it
        must have once libnetwork has added its routes. Raise `LinkMissing` if the sandbox has no link `ifname`.
        """
        with attempt("finish", str(self)), self.host.inside(self.path) as netlink:
            defaults = LinkDefaults(self.path)
            settings = defaults.restore()
            wanted = wanted.in_this_namespace(self.ifname)
            link = find_link(netlink, self.ifname)
            if link is None:
                raise LinkMissing("finish", str(self), tuple(other.state.name for other in list_links(netlink)))
            if wanted.mac is not None and link.state.mac != wanted.mac:
                set_mac(netlink, link, wanted.mac)
                link = find_link(netlink, self.ifname) or link
            addresses = find_addresses(netlink, link)
            routes = without_announced(find_plain_routes(netlink, link), addresses)
            left = [route for route in routes if is_left_to_libnetwork(route, wanted.families)]
            for route in routes:
                if route in left or (wanted.without_defaults and not route.destination.prefixlen):
                    remove_route(netlink, link, route)
            lacks_gateway = wanted.without_defaults or wanted.without_ipv6
            is_ipv6_gateway = not lacks_gateway and any(one.destination.version == _IPV6 for one in left)
            held_back = _hold_back_announced(netlink, link, wanted.sysctls, is_gateway=is_ipv6_gateway)
            sysctls = tuple(sysctl for sysctl in wanted.sysctls if sysctl not in held_back)
            if has_ipv6():
                accept_dad = settings.get(ACCEPT_DAD)
                if accept_dad is not None:
                    write_setting(f"net/ipv6/conf/{self.ifname}/accept_dad", accept_dad)
                # As libnetwork does, from 26.0.2 on, to the links that it moves.
                if wanted.without_ipv6 or not (wanted.keeps_ipv6 or _uses_ipv6(addresses, routes)):
                    write_ipv6(self.ifname, "disable_ipv6", 1)
            for sysctl in sysctls:
                write_setting(sysctl.name, sysctl.value)
            add_addresses(netlink, link, wanted.addresses)
            self._mark(netlink, link)  # last: a marked link in a running container is taken for a complete one
            defaults.forget()
        return Snapshot(link=link.state, addresses=addresses, routes=routes, sysctls=(*held_back, *sysctls))

    @in_thread
    def find(self, mac: str | None = None, *, plugins_have_run: bool = False) -> str | None:
        """Restore the sandbox's settings; return the present name of the link, None if it is not there.

        It is found by its alternative name. Plugins that failed or were interrupted leave it without one. Then it is
        found by its name: by the first call after the plugins, or with its MAC; it receives the alternative name.
        Otherwise a name alone may be another network's or the container's.

        Args:
            mac: Its MAC, None if it is not known.
            plugins_have_run: Whether plugins that make the link may have run.
        """
        try:
            with attempt("look into", str(self.path)), self.host.inside(self.path) as netlink:
                defaults = LinkDefaults(self.path)
                defaults.restore()
                link = find_link_by_altname(netlink, self.altname)
                if link is None:
                    may_be_unfinished = plugins_have_run and defaults.is_pending
                    link = self._find_unmarked(netlink, mac, may_be_unfinished=may_be_unfinished)
                if link is not None:
                    self._mark(netlink, link)
                defaults.forget()
                return None if link is None else link.state.name
        except NamespaceMissing:
            return None

    def _find_unmarked(self, netlink: Netlink, mac: str | None, *, may_be_unfinished: bool) -> Link | None:
        """Return the link by its name; None if it may be the container's own.

        Before `finish` it need not have its MAC yet; but until the plugins ran, no link had its name (`make`). That two
        links have no MAC, such as `tun0`, does not make them the same.
        """
        link = find_link(netlink, self.ifname)
        is_same = link is not None and mac is not None and link.state.mac == mac
        return link if may_be_unfinished or is_same else None

    def _mark(self, netlink: Netlink, link: Link) -> None:
        if self.altname not in link.altnames:
            add_altname(netlink, link, self.altname)

    def __str__(self) -> str:
        return f"link {self.ifname} in {self.path}"


def _hold_back_announced(
    netlink: Netlink, link: Link, sysctls: tuple[Sysctl, ...], *, is_gateway: bool
) -> tuple[Sysctl, ...]:
    """Let a link have no default route of a router, if libnetwork adds its own or the user wants none.

    They have the metric of libnetwork's, which it adds exclusively: the container would not start. A container without
    that, because the reply to Join has no IPv6 gateway, keeps the router's: the next announcement may come minutes
    later. Return the setting that accepts announced routes again, once libnetwork has added its own.
    """
    name = f"net/ipv6/conf/{link.state.name}/accept_ra_defrtr"
    value = next((sysctl.value for sysctl in sysctls if sysctl.name == name), None)
    if not is_gateway and value != "0":
        return ()
    value = value or read_setting(name)
    if value is None:
        return ()
    write_setting(name, "0")
    remove_announced_defaults(netlink, link)
    return () if value == "0" else (Sysctl(name=name, value=value),)


def _uses_ipv6(addresses: tuple[Address, ...], routes: tuple[Route, ...]) -> bool:
    """Return whether plugins configured IPv6 beyond what the kernel does by itself."""
    return any(
        isinstance(one.address, IPv6Interface) and one.scope != SCOPE_LINK and one.is_permanent for one in addresses
    ) or any(
        route.destination.version == IPV6_LINK_LOCAL.version and route.destination != IPV6_LINK_LOCAL
        for route in routes
    )


class LinkDefaults:
    """The settings of a pinned sandbox. Its methods are called in a thread that has entered the sandbox."""

    def __init__(self, pin: Path) -> None:
        self._file = pin.with_name(f"{pin.name}.settings")

    @property
    def is_pending(self) -> bool:
        """Whether `change` was called, and `forget` not yet."""
        return self._file.exists()

    def change(self) -> None:
        """Change the settings for plugins. If they have been changed before, the first values are kept."""
        if self.is_pending:
            return
        found = {name: read_setting(name) for name in _FOR_PLUGINS} if has_ipv6() else {}
        previous = {name: value for name, value in found.items() if value not in {None, _FOR_PLUGINS[name]}}
        # One write: a killed daemon leaves all of them, or none and has not changed anything.
        self._file.write_text("".join(f"{name} {value}\n" for name, value in previous.items()), encoding="ascii")
        for name in previous:
            write_setting(name, _FOR_PLUGINS[name])

    def restore(self) -> Mapping[str, str]:
        """Give the settings their values back, if they have been changed; return these values by name."""
        try:
            lines = self._file.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return {}
        previous = {name: value for name, _, value in (line.partition(" ") for line in lines)}
        for name, value in previous.items():
            write_setting(name, value)
        return previous

    def forget(self) -> None:
        """Remove the file: the settings are restored, and the link is marked, if there is one."""
        self._file.unlink(missing_ok=True)
