# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The steps of a connectivity test: what each finds, and what to look at if it fails."""

import re
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import islice
from pathlib import Path
from typing import Final

from cnm_bridge.core.lists.guard import RESPONDER
from cnm_bridge.core.planning.ports import place_of
from cnm_bridge.operator.connectivity.pair import MARK, PORT, Pair
from cnm_bridge.system.commands import CompletedCommand

REFUSED: Final = IPv4Address("192.0.2.1")
"""An address that nothing has (RFC 5737)."""
_ENTRY: Final = re.compile(r"(?!host:)(?P<host>[\w.-]+)(?::(?P<port>\d+)(?:/tcp)?)?")
_WEB: Final = 443
_NETWORK: Final = re.compile(r"(?P<network>[\d.]+(?:/\d+)?)(?::(?:\*|(?P<first>\d+)(?:-(?P<last>\d+))?))?(?:/tcp)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """How a network is guarded.

    Attributes:
        name_server: The value of `--dns` that its containers need; None if they need none.
        is_audited: Whether everything passes.
    """

    entries: Sequence[str]
    name_server: str | None = None
    is_audited: bool = False

    def refuses(self, address: IPv4Address, port: int) -> bool:
        """Return whether no network of the allow-list has an address with a port of TCP."""
        return not self.is_audited and not any(_has(entry, address, port) for entry in self.entries)

    def destinations(self) -> Iterator[tuple[str, int]]:
        """Yield names and IPv4 addresses of the allow-list, each with a port of TCP."""
        for entry in self.entries:
            found = _ENTRY.fullmatch(entry)
            if found is not None:
                yield found["host"], int(found["port"] or _WEB)


def _has(entry: str, address: IPv4Address, port: int) -> bool:
    found = _NETWORK.fullmatch(entry)
    try:
        if found is None or address not in ip_network(found["network"], strict=False):
            return False
    except ValueError:  # it is a name, such as 1.2.3
        return False
    first = found["first"]
    return first is None or int(first) <= port <= int(found["last"] or first)


def parse_lookup(output: str) -> tuple[IPv4Address | IPv6Address, ...]:
    """Return the addresses in the output of `nslookup`, without that of the server."""
    _, _, answer = output.partition("Name:")
    found = re.findall(r"^Address(?: \d+)?:\s+([0-9a-fA-F.:]+)", answer, re.MULTILINE)
    return tuple(map(ip_address, found))


_ROUTES: Final = Path("/proc/net/route")
_LIMIT_S: Final = 5
_PAUSE_S: Final = 0.1
_TRIED: Final = 3
"""How many destinations of an allow-list are tried."""
_FETCH: Final = f"""
for attempt in 1 2 3 4 5; do
    answer=$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w {_LIMIT_S} "$1" {PORT}) && printf %s "$answer" && exit
    sleep 1
done
exit 1"""
"""Fetches a page, as soon as the server listens. Not with wget, which crashes in Debian's static busybox."""
_HEADERS: Final = {4: 28, 6: 48}
"""Bytes of the headers of an ICMP echo, by IP version."""

Address = IPv4Address | IPv6Address


LOOK_AT: Final = {
    "start": "cni-bridge explain NETWORK, cni-bridge doctor, and journalctl -u cni-bridge -p warning",
    "addresses": "the IPAM part of the configuration, and cni-bridge explain NETWORK",
    "peer": "cni-bridge doctor: often the policy of FORWARD, and a list without the plugin firewall",
    "gateway": "the link of the gateway on the host (ip addr), and rules in the chain INPUT",
    "outside": "cni-bridge doctor; masquerading (ipMasq) in the configuration; the router's way back to the subnet",
    "allowed": "cni-bridge egress log NETWORK, and cni-bridge egress check CONTAINER DESTINATION:PORT",
    "refused": "cni-bridge doctor, and cni-bridge egress ls NETWORK",
    "names": "docker exec CONTAINER cat /etc/resolv.conf, and dockerd's log",
    "port": "iptables -t nat -S, or nft list ruleset, for the port; the plugin portmap in the list",
    "mtu": "the MTU of the bridge or parent link: ip link; a tunnel below it needs a smaller one (mtu in the list)",
    "interrupt": "the steps above; cni-bridge test NETWORK runs all of them again",
    "cleanup": "cni-bridge status, which shows why a teardown is pending",
}
"""Step → what to look at if it fails."""


class Outcome(StrEnum):
    """The outcome of a step."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It does not apply to this network; the detail says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        name: A key of `LOOK_AT`.
        detail: What was reached, why it failed, or why it was skipped.
    """

    outcome: Outcome
    name: str
    detail: str


_passed: Final = partial(Step, Outcome.PASSED)
_failed: Final = partial(Step, Outcome.FAILED)
_skipped: Final = partial(Step, Outcome.SKIPPED)


def run_steps(
    pair: Pair, busybox: Path, *, outside: Address | None, no_ports: str, guard: Guard | None = None
) -> Iterator[Step]:
    """Yield the steps as they end, `cleanup` excepted. If the containers do not start, there are no others.

    A guarded network refuses its gateway and the outside: a connection that it allows is tested, and one that it does
    not. `outside` is an address beyond the host, by default its router; `no_ports` says why no ports are published.
    """
    done = pair.start(busybox)
    if not done.succeeded:
        yield _failed("start", done.error)
        return
    yield _passed("start", "both containers run")
    first, second = pair.names
    mine, peers = _wait_addresses(pair, first), _wait_addresses(pair, second)
    if not mine or not peers or set(mine) & set(peers):
        yield _failed("addresses", f"{_join(mine) or 'none'} and {_join(peers) or 'none'}")
        return
    yield _passed("addresses", f"{_join(mine)} and {_join(peers)}")
    peer = _reach_peer(pair, peers)
    yield peer
    gateways = parse_gateways(pair.inside(first, "ip", *family, "route").output for family in ((), ("-6",)))
    if guard is not None:
        yield _reach_allowed(pair, guard)
        yield _reach_refused(pair, guard)
    else:
        yield _ping_all(pair, "gateway", gateways, "there is no default route")
        yield _reach_outside(pair, outside, has_route=bool(gateways))
    yield _resolve(pair, peers)
    yield _reach_port(pair, gateways, no_ports)
    if peer.outcome is Outcome.PASSED:
        yield _send_full_packets(pair, peers[0])
    else:
        yield _skipped("mtu", "the other container is not reached at all")


def _wait_addresses(pair: Pair, name: str) -> tuple[Address, ...]:
    """Return the addresses inside a container; before Engine 28 it may start some milliseconds before it has all."""
    deadline = time.monotonic() + _LIMIT_S
    while not (found := parse_addresses(pair.inside(name, "ip", "addr").output)) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    return found


def _reach_peer(pair: Pair, peers: tuple[Address, ...]) -> Step:
    step = _ping_all(pair, "peer", peers, "")
    if step.outcome is not Outcome.PASSED:
        return step
    for peer in peers:
        done = pair.inside(pair.names[0], "sh", "-c", _FETCH, "fetch", str(peer))
        if not done.output.endswith(MARK):
            return _failed("peer", f"{peer} answers a ping, and no TCP connection to port {PORT}: {done.error}")
    return _passed("peer", f"{_join(peers)} by ICMP and TCP")


def _ping_all(pair: Pair, name: str, targets: tuple[Address, ...], reason: str) -> Step:
    if not targets:
        return _skipped(name, reason)
    for target in targets:
        if not _ping(pair, target):
            return _failed(name, f"{target} does not answer a ping")
    return _passed(name, _join(targets))


def _reach_outside(pair: Pair, outside: Address | None, *, has_route: bool) -> Step:
    target = outside or _find_router()
    if target is None:
        return _skipped("outside", "the host has no default route; --outside ADDRESS chooses a target")
    if not has_route:
        return _skipped("outside", "the container has no default route")
    if _ping(pair, target):
        return _passed("outside", str(target))
    if outside is None and not _host_reaches(target):
        return _skipped("outside", f"the router {target} does not answer the host either; --outside ADDRESS")
    return _failed("outside", f"{target} does not answer a ping")


def _reach_allowed(pair: Pair, guard: Guard) -> Step:
    """Try the first destinations of the allow-list, until one answers."""
    tried = [*islice(guard.destinations(), _TRIED)]
    for host, port in tried:
        if _connects(pair, host, port):
            return _passed("allowed", f"{host}:{port} is reached")
    for host, port in tried:
        with suppress(OSError), socket.create_connection((host, port), timeout=_LIMIT_S):
            text = f"{host}:{port} is in the allow-list and does not answer, although the host reaches it"
            return _failed("allowed", text)
    return _skipped("allowed", "no name or IPv4 address of the allow-list answers the host by TCP")


def _connects(pair: Pair, host: str, port: int) -> bool:
    """Return whether the first container reaches a server; a name is resolved as a program would."""
    first = pair.names[0]
    try:
        addresses: tuple[Address, ...] = (ip_address(host),)
    except ValueError:
        addresses = parse_lookup(pair.inside(first, "nslookup", host, RESPONDER).output)
    return any(_tries(pair, str(address), port).succeeded for address in addresses)


def _tries(pair: Pair, address: str, port: int) -> CompletedCommand:
    return pair.inside(pair.names[0], "nc", "-w", str(_LIMIT_S), address, str(port), "-e", "true")


def _reach_refused(pair: Pair, guard: Guard) -> Step:
    """Try an address that the allow-list does not have: it must be refused at once."""
    if not guard.refuses(REFUSED, PORT):
        return _skipped("refused", f"the network only watches, or its allow-list has {REFUSED}:{PORT}")
    done = _tries(pair, str(REFUSED), PORT)
    if done.succeeded or "refused" not in done.error.lower():
        return _failed("refused", f"{REFUSED}:{PORT} is not refused: {done.error}")
    return _passed("refused", f"{REFUSED}:{PORT}, which the allow-list does not have")


def _resolve(pair: Pair, peers: tuple[Address, ...]) -> Step:
    first, second = pair.names
    if not pair.has_docker_address(second):
        return _skipped("names", "Docker does not know the containers' addresses; cni-bridge explain says why")
    done = pair.inside(first, "nslookup", second, "127.0.0.11")
    found = [peer for peer in peers if str(peer) in done.output.split()]
    if not found:
        return _failed("names", f"Docker's DNS does not answer the name of the other container: {done.error}")
    return _passed("names", f"the other container's name is {_join(tuple(found))}")


def _reach_port(pair: Pair, gateways: tuple[Address, ...], no_ports: str) -> Step:
    if pair.host_port is None:
        return _skipped("port", no_ports)
    targets = (*gateways, ip_address("127.0.0.1"))
    reasons = []
    for target in targets:
        try:
            request = urllib.request.urlopen(f"http://{place_of(target, pair.host_port)}/", timeout=_LIMIT_S)
            with request as answer:
                if answer.read().decode("utf-8", "replace").strip() == MARK:
                    return _passed("port", f"host port {pair.host_port} by {target}")
            reasons.append(f"{target}: another program answers")
        except (OSError, ValueError) as exc:
            reasons.append(f"{target}: {exc}")
    return _failed("port", f"host port {pair.host_port} does not lead to the container: {'; '.join(reasons)}")


def _send_full_packets(pair: Pair, peer: Address) -> Step:
    mtus = [parse_mtu(pair.inside(name, "ip", "link").output) for name in pair.names]
    if None in mtus:
        return _failed("mtu", "a container has no link")
    mtu = min(mtu for mtu in mtus if mtu is not None)
    if _ping(pair, peer, size=mtu - _HEADERS[peer.version]):
        return _passed("mtu", f"packets of {mtu} bytes reach {peer}")
    return _failed("mtu", f"packets of {mtu} bytes, the MTU of the links, do not reach {peer}")


def _ping(pair: Pair, target: Address, *, size: int = 56) -> bool:
    family = ("-6",) if target.version == 6 else ()  # noqa: PLR2004
    command = ("ping", *family, "-c", "2", "-A", "-w", str(_LIMIT_S), "-s", str(size), str(target))
    return pair.inside(pair.names[0], *command).succeeded


def _find_router() -> Address | None:
    """Return the IPv4 router of the host's default route (proc_pid_net(5), `route`)."""
    for line in _ROUTES.read_text("ascii").splitlines()[1:]:
        _, destination, gateway, *_ = line.split()
        if int(destination, 16) == 0 and int(gateway, 16) != 0:
            return IPv4Address(bytes.fromhex(gateway)[::-1])
    return None


def _host_reaches(target: Address) -> bool:
    try:
        command = ("ping", "-c", "1", "-w", str(_LIMIT_S), str(target))
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:  # there is no ping
        return False


def _join(addresses: tuple[Address, ...]) -> str:
    return " ".join(map(str, addresses))


def parse_addresses(output: str) -> tuple[Address, ...]:
    """Return the addresses that `ip addr` shows, without those of `lo` and link-local ones."""
    found = map(ip_address, re.findall(r"^\s+inet6? ([0-9a-f.:]+)", output, re.MULTILINE))
    return tuple(address for address in found if not address.is_loopback and not address.is_link_local)


def parse_gateways(outputs: Iterable[str]) -> tuple[Address, ...]:
    """Return the gateways of the default routes that `ip route` and `ip -6 route` show."""
    return tuple(
        ip_address(gateway)
        for output in outputs
        for gateway in re.findall(r"^default via ([0-9a-f.:]+)", output, re.MULTILINE)
    )


def parse_mtu(output: str) -> int | None:
    """Return the smallest MTU that `ip link` shows, without that of `lo`; None if there is none."""
    found = re.findall(r"^\d+: (?!lo:)[^:]+: .* mtu (\d+)", output, re.MULTILINE)
    return min(map(int, found), default=None)
