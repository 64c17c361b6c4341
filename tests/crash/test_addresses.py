# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon is killed at every boundary of every IpamDriver call; its next run reserves exactly what its records say.

What Docker has received stays, what it has not received is released, and a repeated release leaves nothing.
"""

import http.client
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, get_str
from tests.crash.host import Host
from tests.crash.lists import LISTS
from tests.lab import ADMIN_SOCKET, PLUGIN_SOCKET, Lab, wait_until
from tests.lab.unix_http import request

pytestmark = pytest.mark.timeout(1800)

SECTION: Final = "reserved"
SUBNET: Final = "10.81.0.0/24"
GIVEN: Final = "10.81.0.77"
POOL: Final = f"{SECTION},{SUBNET},,0a0b0c0d"
"""A pool whose record does not exist: it is made again by the first request."""

Step = Callable[["Addresses"], JsonObject | None]


class Addresses:
    """The pools and addresses of a host's daemon."""

    def __init__(self, host: Host) -> None:
        self.host = host
        ipam: JsonObject = {"type": "host-local", "subnet": SUBNET}
        host.lab.write(f"/etc/cni/net.d/{SECTION}.ipam", {"cniVersion": "1.0.0", "name": SECTION, "ipam": ipam})

    def call(self, method: str, body: JsonObject) -> JsonObject | None:
        """Call the daemon as dockerd does; return None if it dies meanwhile."""
        try:
            _, answer = self.host.lab.request(PLUGIN_SOCKET, "POST", f"/IpamDriver.{method}", body, timeout_s=60)
        except (OSError, http.client.HTTPException):
            return None
        return as_object(answer, method)

    def records(self) -> Mapping[str, str]:
        """Return the phase of each address that the daemon has."""
        _, document = request(self.host.lab.path(ADMIN_SOCKET), "GET", "/v1/addresses")
        found = get_objects(as_object(document, "addresses"), "addresses")
        return {str(one["address"]).partition("/")[0]: get_str(one, "phase") for one in found}

    def reserved(self) -> frozenset[str]:
        """Return the addresses that host-local has reserved."""
        found = self.host.lab.run("sh", "-c", f"ls /var/lib/cni/networks/{SECTION} 2>/dev/null", check=False)
        return frozenset(one for one in found.stdout.split() if one[0].isdigit())

    def is_consistent(self) -> bool:
        """Return whether nothing is pending, and records and plugin have the same addresses."""
        records = self.records()
        return set(records.values()) <= {"reserved"} and records.keys() == self.reserved()

    def release(self) -> None:
        """Release everything as Docker does, and assert that nothing is left."""
        for address in self.records():
            assert self.call("ReleaseAddress", {"PoolID": POOL, "Address": address}) == {}
        assert self.call("ReleasePool", {"PoolID": POOL}) == {}
        assert (self.records(), self.reserved()) == ({}, frozenset())


def any_address(addresses: Addresses) -> JsonObject | None:
    """Request an address that the plugin chooses."""
    return addresses.call("RequestAddress", {"PoolID": POOL, "Address": "", "Options": None})


def given_address(addresses: Addresses) -> JsonObject | None:
    """Request a certain address."""
    return addresses.call("RequestAddress", {"PoolID": POOL, "Address": GIVEN, "Options": None})


def release_address(addresses: Addresses) -> JsonObject | None:
    """Release it."""
    return addresses.call("ReleaseAddress", {"PoolID": POOL, "Address": GIVEN})


def release_pool(addresses: Addresses) -> JsonObject | None:
    """Release the pool with an address that it still has."""
    return addresses.call("ReleasePool", {"PoolID": POOL})


CALLS: Final[Mapping[str, tuple[tuple[Step, ...], Step]]] = {
    "RequestAddress": ((), any_address),
    "RequestAddress of a certain one": ((any_address,), given_address),
    "ReleaseAddress": ((given_address,), release_address),
    "ReleasePool": ((given_address,), release_pool),
}
"""What is called before, and the call that the daemon dies in."""


@pytest.mark.parametrize("name", CALLS)
def test_killed_in_a_call(lab: Lab, name: str) -> None:
    """The next run of the daemon is consistent, and everything can be released."""
    before, step = CALLS[name]
    with Host(lab, LISTS["bridge"]) as host:
        addresses = Addresses(host)
        _try(addresses, before, step, 0)  # it makes a directory, which later ones do not
        boundaries = _try(addresses, before, step, 0)
        assert any(one.startswith("write address") for one in boundaries), boundaries
        for number, boundary in enumerate(boundaries, 1):
            assert _try(addresses, before, step, number), f"not reached: {boundary}"


def _try(addresses: Addresses, before: tuple[Step, ...], step: Step, number: int) -> tuple[str, ...]:
    """Make a call, in which the daemon dies at a boundary if it is not 0; return the boundaries that were reached."""
    host = addresses.host
    for earlier in before:
        assert "Address" in (earlier(addresses) or {})
    kept = addresses.reserved()
    host.arm(number)
    answer = step(addresses)
    if number:
        host.wait_dead()
        # Docker does not wait for the plugin's release, so this call may have been answered before.
        assert answer is None or step is release_address
    else:
        wait_until(addresses.is_consistent, "consistent", timeout_s=20)
    reached = host.disarm()
    if number:
        host.start()
    wait_until(addresses.is_consistent, f"consistent after {reached[-1:]}", timeout_s=20)
    if step in {any_address, given_address}:
        assert kept <= addresses.reserved(), f"lost after {reached[-1:]}"
    addresses.release()
    return reached
