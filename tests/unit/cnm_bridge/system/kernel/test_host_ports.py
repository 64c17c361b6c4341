# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A port that a program uses is found, and a port that is free again is not. Only loopback addresses are used."""

import socket
from ipaddress import IPv4Address

import pytest

from cnm_bridge.system.kernel import HostPorts

LOOPBACK = IPv4Address("127.0.0.1")
KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


@pytest.mark.parametrize("protocol", KINDS)
def test_the_port_of_a_program_is_an_obstacle(protocol: str) -> None:
    """It is one for its protocol, on its own address and on all addresses."""
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


def test_a_closed_connection_is_no_obstacle() -> None:
    """A connection in TIME_WAIT does not use the port."""
    ports = HostPorts()
    with socket.socket() as server, socket.socket() as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do
        server.bind((str(LOOPBACK), 0))
        server.listen()
        port: int = server.getsockname()[1]
        client.connect((str(LOOPBACK), port))
        connection, _ = server.accept()
        connection.close()  # the side that closes first keeps TIME_WAIT
        assert client.recv(1) == b""
    assert ports.find_obstacle("tcp", LOOPBACK, port) is None


def test_a_missing_address_is_an_obstacle() -> None:
    """No port of an address that the host does not have can be used or proposed."""
    assert "assign" in (HostPorts().find_obstacle("tcp", IPv4Address("203.0.113.9"), 80) or "")
    with pytest.raises(OSError, match="assign"):
        HostPorts().propose("udp", IPv4Address("203.0.113.9"))


@pytest.mark.parametrize("protocol", ["tcp", "udp", "sctp"])
def test_a_port_is_proposed(protocol: str) -> None:
    """If the kernel does not support the protocol, no program can use any of its ports."""
    assert 0 < HostPorts().propose(protocol, LOOPBACK) < 1 << 16
