# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A real etcd of one or three members, each with a loopback address of its own, in the tests' network namespace."""

import http.client
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.lab.debian import FetchError
from tests.lab.fetch import fetch_program
from tests.lab.waiting import wait_until

_FIRST_GROUP: Final = 61_000
"""The group of the first member's process; each has one of its own, by which its packets are known."""


class Cluster:
    """Members, by number from 0 on."""

    def __init__(self, directory: Path, addresses: Sequence[str], options: Sequence[str] = ()) -> None:
        self._directory = directory
        self._addresses = tuple(addresses)
        self._options = tuple(options)
        self._scheme = "https" if options else "http"
        self._members: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def endpoints(self) -> list[str]:
        """The members' URLs."""
        return [f"{self._scheme}://{address}:2379" for address in self._addresses]

    def start(self, number: int) -> None:
        """Start a member, for the first time or with the data that it has."""
        address, client = self._addresses[number], self.endpoints[number]
        peers = ",".join(f"m{index}=http://{one}:2380" for index, one in enumerate(self._addresses))
        words = {
            "name": f"m{number}",
            "data-dir": self._directory / f"m{number}",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": f"http://{address}:2380",
            "initial-advertise-peer-urls": f"http://{address}:2380",
            "initial-cluster": peers,
            "listen-metrics-urls": f"http://{address}:2381",
            "log-level": "error",
        }
        command = [str(fetch_program("etcd")), *(f"--{key}={value}" for key, value in words.items()), *self._options]
        with (self._directory / f"m{number}.log").open("ab") as log:
            self._members[number] = subprocess.Popen(command, stdout=log, stderr=log, group=_FIRST_GROUP + number)

    def wait_healthy(self, *numbers: int) -> None:
        """Wait until members serve, which needs a quorum."""
        for number in numbers:
            wait_until(lambda number=number: self.is_healthy(number), f"etcd m{number}", poll_s=0.05)  # type: ignore[misc]

    def is_healthy(self, number: int) -> bool:
        """Return whether a member serves."""
        connection = http.client.HTTPConnection(self._addresses[number], 2381, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    def kill(self, number: int) -> None:
        """Kill a member; its data stay."""
        with self._members.pop(number) as member:
            member.kill()

    @contextmanager
    def silent(self, *numbers: int) -> Iterator[None]:
        """Stop members for the body: they accept connections, and do not answer."""
        for number in numbers:
            self._members[number].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for number in numbers:
                self._members[number].send_signal(signal.SIGCONT)

    @contextmanager
    def unreachable(self, number: int) -> Iterator[None]:
        """Drop all packets from and to a member's address for the body."""
        with _dropping(*(("INPUT", side, self._addresses[number]) for side in ("-s", "-d"))):
            yield

    @contextmanager
    def cut_off(self, number: int) -> Iterator[None]:
        """Drop all packets between a member and the others for the body: clients reach it, and it has no leader."""
        incoming = ("INPUT", "-p", "tcp", "-d", self._addresses[number], "--dport", "2380")
        of_member = ("-m", "owner", "--gid-owner", str(_FIRST_GROUP + number))  # all members connect from 127.0.0.1
        with _dropping(incoming, ("OUTPUT", "-p", "tcp", "--dport", "2380", *of_member)):
            yield

    def stop(self) -> None:
        """Kill all members."""
        for number in tuple(self._members):
            self.kill(number)


@contextmanager
def _dropping(*matches: Sequence[str]) -> Iterator[None]:
    for match in matches:
        subprocess.run(["iptables", "-w", "-A", *match, "-j", "DROP"], check=True)
    try:
        yield
    finally:
        for match in matches:
            subprocess.run(["iptables", "-w", "-D", *match, "-j", "DROP"], check=True)


@contextmanager
def cluster(directory: Path, addresses: Sequence[str], options: Sequence[str] = ()) -> Iterator[Cluster]:
    """Give a cluster that serves; the test is skipped if etcd cannot be had."""
    try:
        fetch_program("etcd")
    except FetchError as exc:
        pytest.skip(f"etcd cannot be had: {exc}")
    made = Cluster(directory, addresses, options)
    try:
        for number in range(len(addresses)):
            made.start(number)
        made.wait_healthy(*range(len(addresses)))
        yield made
    finally:
        made.stop()
