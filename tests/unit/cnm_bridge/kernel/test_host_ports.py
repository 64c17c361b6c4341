# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A port that a program has is found, one that it has no more is not; on the loopback addresses only."""

import socket
from ipaddress import IPv4Address

import pytest

from cnm_bridge.kernel import HostPorts

LOOPBACK = IPv4Address("127.0.0.1")
KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


@pytest.mark.parametrize("protocol", KINDS)
def test_a_programs_port(protocol: str) -> None:
    """It is an obstacle for its own protocol, on its own address and on all of them."""
    ports = HostPorts()
    with socket.socket(socket.AF_INET, KINDS[protocol]) as program:
        program.bind((str(LOOPBACK), 0))
        if protocol == "tcp":
            program.listen()
        port: int = program.getsockname()[1]
        assert ports.find_obstacle(protocol, LOOPBACK, port) == "Address already in use"
        assert ports.find_obstacle(protocol, None, port) == "Address already in use"
        assert ports.find_obstacle(protocol, IPv4Address("127.0.0.2"), port) is None
    assert ports.find_obstacle(protocol, LOOPBACK, port) is None


def test_a_connection_that_is_over() -> None:
    """What the kernel remembers of connections for a while is no obstacle: no program has the port."""
    ports = HostPorts()
    with socket.socket() as server, socket.socket() as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        server.bind((str(LOOPBACK), 0))
        server.listen()
        port: int = server.getsockname()[1]
        client.connect((str(LOOPBACK), port))
        connection, _ = server.accept()
        connection.close()  # whoever closes first keeps the port in TIME_WAIT
        assert client.recv(1) == b""
    assert ports.find_obstacle("tcp", LOOPBACK, port) is None


def test_an_address_that_is_not_there() -> None:
    """Nobody could have a port of it."""
    assert "assign" in (HostPorts().find_obstacle("tcp", IPv4Address("203.0.113.9"), 80) or "")
    with pytest.raises(OSError, match="assign"):
        HostPorts().propose("udp", IPv4Address("203.0.113.9"))


@pytest.mark.parametrize("protocol", ["tcp", "udp", "sctp"])
def test_a_port_is_proposed(protocol: str) -> None:
    """Also where the kernel does not know the protocol: then nobody has any of its ports."""
    assert 0 < HostPorts().propose(protocol, LOOPBACK) < 1 << 16
