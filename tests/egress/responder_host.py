# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A host with guarded containers, `cni-egress`, and an internet: all of it in namespaces, from which nothing leads out.

The internet has the networks 11.0.0.0/8 and 2a0f::/16, each address of which answers at the TCP ports of `PORTS`.
"""

import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Final

import dns.message
import dns.query

from cni_egress.enforcement import Enforcement
from cni_egress.policy import Policy
from cni_egress.records import DIRECTORY, Record, Records
from tests.egress.internet import open_inside
from tests.egress.upstream import FakeUpstream
from tests.kernel.namespace import Namespace, made_namespace
from tests.lab.waiting import wait_until

COMMAND: Final = Path(sys.executable).with_name("cni-egress")
PORTS: Final = (22, 80, 443)
USER: Final = pwd.getpwuid(65534).pw_name
"""A user without any right, as which the daemon runs."""
RESPONDER: Final = "169.254.53.53"
RESPONDER6: Final = "fd53:5353::53"
_BRIDGE: Final = "agents0"
_ANSWER_S: Final = 8.0
_REACH_S: Final = 1.5
_START_S: Final = 20.0
_SETUP: Final = f"""
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv6.conf.default.accept_dad=0
ip link add {_BRIDGE} type bridge
ip address add 10.66.0.1/24 dev {_BRIDGE}
ip -6 address add fd00:66::1/64 dev {_BRIDGE} nodad
ip link set {_BRIDGE} up
ip link add uplink0 type veth peer name eth0 netns internet
ip address add 11.0.0.1/30 dev uplink0
ip -6 address add 2a0f::1/126 dev uplink0 nodad
ip link set uplink0 up
ip -n internet link set lo up
ip -n internet link set eth0 up
ip -n internet address add 11.0.0.2/30 dev eth0
ip -n internet -6 address add 2a0f::2/126 dev eth0 nodad
ip -n internet route add local 11.0.0.0/8 dev lo
ip -n internet -6 route add local 2a0f::/16 dev lo
ip -n internet route add default via 11.0.0.1
ip -n internet -6 route add default via 2a0f::1
ip route add default via 11.0.0.2
ip -6 route add default via 2a0f::2
"""
_TEARDOWN: Final = f"""
ip link delete {_BRIDGE}
ip link delete uplink0
nft delete table inet cni-egress
nft delete table bridge cni-egress
ip rule delete priority 40
ip -6 rule delete priority 40
"""


@dataclass
class Container:
    """A container: a namespace with a link to the guarded bridge."""

    namespace: Namespace
    record: Record

    def ask(self, name: str, kind: str = "A", *, tcp: bool = False, server: str = RESPONDER) -> dns.message.Message:
        """Return the response to a query from within the container."""
        query = dns.message.make_query(name, kind, use_edns=0, payload=1232)
        family = socket.AF_INET6 if ":" in server else socket.AF_INET
        with open_inside(self.namespace, family, socket.SOCK_STREAM if tcp else socket.SOCK_DGRAM) as sock:
            sock.settimeout(_ANSWER_S)
            if tcp:
                sock.connect((server, 53))
                return dns.query.tcp(query, server, _ANSWER_S, sock=sock)
            sock.setblocking(False)
            return dns.query.udp(query, server, _ANSWER_S, sock=sock)

    def addresses(self, name: str, kind: str = "A", *, tcp: bool = False, server: str = RESPONDER) -> list[str]:
        """Return the addresses that the container learns for a name."""
        response = self.ask(name, kind, tcp=tcp, server=server)
        return [str(item) for one in response.answer for item in one if one.rdtype in {1, 28}]

    def connect(self, address: str, port: int = 443) -> socket.socket:
        """Return a connection from the container to an address.

        Raises:
            OSError: It is refused, or there is no answer.
        """
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = open_inside(self.namespace, family, socket.SOCK_STREAM)
        try:
            sock.settimeout(_REACH_S)
            sock.connect((address, port))
        except OSError:
            sock.close()
            raise
        return sock

    def can_reach(self, address: str, port: int = 443) -> bool:
        """Return whether a TCP connection from the container to an address succeeds."""
        try:
            self.connect(address, port).close()
        except OSError:
            return False
        return True


@dataclass
class Host:
    """The host."""

    upstream: FakeUpstream
    internet: Namespace
    listeners: dict[int, socket.socket]
    records: Records = field(default_factory=Records)
    daemon: subprocess.Popen[bytes] | None = None

    def start_daemon(self, *options: str) -> None:
        """Start `cni-egress` as another user, and return when it answers."""
        server = f"{self.upstream.host}:{self.upstream.port}"
        command = [str(COMMAND), "run", "--config", "/dev/null", "--user", USER, "--upstream", server, *options]
        self.daemon = subprocess.Popen(command)
        wait_until(self._is_up, "cni-egress answers", _START_S)

    def _is_up(self) -> bool:
        assert self.daemon is not None
        assert self.daemon.poll() is None, "cni-egress has ended"
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            sock.settimeout(0.2)
            try:
                sock.sendto(dns.message.make_query("up.example", "A").to_wire(), (RESPONDER, 53))
                return bool(sock.recv(512))
            except OSError:
                return False

    def stop_daemon(self, number: int = signal.SIGTERM) -> int:
        """End `cni-egress` with a signal, and return its exit status."""
        assert self.daemon is not None
        self.daemon.send_signal(number)
        status = self.daemon.wait()
        self.daemon = None
        return status

    @contextmanager
    def container(
        self, number: int, allow: Sequence[str], *, audit: bool = False, network: str = "agents"
    ) -> Iterator[Container]:
        """Make a container with a policy for the length of the block."""
        port = f"agent{number}"
        addresses = (f"10.66.0.{number}", f"fd00:66::{number}")
        with made_namespace(port) as namespace:
            _run(f"ip link add {port} type veth peer name eth0 netns {port}\nip link set {port} master {_BRIDGE} up")
            namespace.ip("link set lo up", "link set eth0 up", f"address add {addresses[0]}/24 dev eth0")
            namespace.ip(f"-6 address add {addresses[1]}/64 dev eth0 nodad", "route add default via 10.66.0.1")
            namespace.ip("-6 route add default via fd00:66::1")
            record = Record(
                network=network,
                container_id=f"c{number}",
                ifname="eth0",
                link=_BRIDGE,
                port=port,
                mac=str(namespace.link("eth0")["address"]),
                addresses=tuple(map(ip_address, addresses)),
                subnets=(ip_network("10.66.0.0/24"), ip_network("fd00:66::/64")),
                policy=Policy.parse(allow, audit=audit),
            )
            with self.records.locked(), Enforcement(self.records) as enforcement:
                enforcement.protect(record)
            found = self.records.by_source(record.addresses[0])
            assert found is not None
            try:
                yield Container(namespace, found)
            finally:
                with self.records.locked(), Enforcement(self.records) as enforcement:
                    enforcement.release(found)
                _run(f"ip link delete {port}")  # a connection that is not closed keeps the namespace, and so the link

    def change_policy(self, container: Container, allow: Sequence[str]) -> None:
        """Give a container another policy, as another ADD would."""
        changed = Record.from_document({**container.record.document, "policy": Policy.parse(allow).document})
        with self.records.locked(), Enforcement(self.records) as enforcement:
            enforcement.protect(changed)
        found = self.records.by_source(changed.addresses[0])
        assert found is not None
        container.record = found


@contextmanager
def guarded_host(upstream: FakeUpstream) -> Iterator[Host]:
    """Give a host in this network namespace, which has nothing yet; the daemon does not run yet."""
    with ExitStack() as stack:
        internet = stack.enter_context(made_namespace("internet"))
        stack.callback(_run, _TEARDOWN, check=False)
        _run(_SETUP)
        listeners = {}
        for port in PORTS:
            listeners[port] = stack.enter_context(open_inside(internet, socket.AF_INET6, socket.SOCK_STREAM))
            listeners[port].bind(("::", port))
            listeners[port].listen(1024)
        for address, source in (("11.0.0.2", "10.66.0.1"), ("2a0f::2", "fd00:66::1")):
            wait_until(partial(_answers, address, source), f"the internet answers at {address}", _START_S)
        host = Host(upstream, internet, listeners)
        try:
            yield host
        finally:
            if host.daemon is not None:
                host.stop_daemon(signal.SIGKILL)
                subprocess.run(["ip", "link", "delete", "cni-dns"], check=False, stderr=subprocess.DEVNULL)
            subprocess.run(["rm", "-rf", DIRECTORY], check=True)


def _answers(address: str, source: str) -> bool:
    """Return whether a new link has found its neighbor: the first solicitations after its start may be lost."""
    try:
        socket.create_connection((address, PORTS[0]), timeout=0.5, source_address=(source, 0)).close()
    except OSError:
        return False
    return True


def _run(commands: str, *, check: bool = True) -> None:
    shell = ["sh", "-euc" if check else "-uc", commands]
    subprocess.run(shell, check=check, stderr=None if check else subprocess.DEVNULL)
