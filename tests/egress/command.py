# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The command `cni-egress`, as tests run it, and what the kernel then has."""

import json
import subprocess
import time
from socket import socket
from typing import Any

from cni_egress.nftables import Element, Family, Nftables, key_address, key_ifname
from cni_egress.records import Record
from tests.egress.responder_host import COMMAND, Host


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60)


def ask(*arguments: str) -> Any:  # noqa: ANN401  # JSON
    """Return what the command prints as JSON; it must succeed."""
    ended = run(*arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def is_alive(host: Host, port: int, client: socket) -> bool:
    """Return whether what a container sends in a connection still arrives at the internet."""
    text = f"{time.monotonic()}".encode()
    try:
        client.sendall(text)
    except OSError:
        return False
    host.listeners[port].settimeout(2)
    try:
        while True:
            served, peer = host.listeners[port].accept()
            with served:
                if peer[1] == client.getsockname()[1]:
                    served.settimeout(2)
                    return served.recv(1000).endswith(text)
    except OSError:
        return False


def chain_in_force(record: Record) -> str:
    """Return the chain to which the kernel sends a container's packets."""
    with Nftables() as nftables:
        found = nftables.find(Family.INET, "sources4", key_ifname(record.link) + key_address(record.addresses[0]))
    return (found or Element(b"")).chain
