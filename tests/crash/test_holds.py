# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The daemon is killed before and after every effect on what keys have (`cni.sticky`): nothing is lost or left.

The endpoints are of mode *direct*, whose plugins run at Join, so that all boundaries are those of holds.
"""

import http.client
from collections.abc import Callable, Mapping
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_str, get_objects, get_str, get_strings
from tests.crash.endpoint import Endpoint
from tests.crash.host import LIST, SANDBOX, Host
from tests.crash.lists import LISTS
from tests.crash.way import Way
from tests.lab import ADMIN_SOCKET, Lab, wait_until
from tests.lab.unix_http import request

pytestmark = pytest.mark.timeout(1800)

KEY: Final = "web"
Step = Callable[["Keys"], bool]
"""Does something; returns whether the daemon has answered it and what follows from it."""


class Keys:
    """The key of a host's network, and the latest endpoint with it.

    Args:
        host: A host without Docker.
    """

    def __init__(self, host: Host) -> None:
        self.host = host
        self.known: set[str] = set()
        self.endpoint = self.next_endpoint()

    def next_endpoint(self) -> Endpoint:
        """Return an endpoint with the key that does not exist yet."""
        options: JsonObject = {"cni.sticky": KEY}
        return Endpoint(self.host.lab, self.host.call, self.host.next_number(), SANDBOX, options=options, gateways=())

    def hold(self) -> JsonObject | None:
        """Return what the key has."""
        _, document = request(self.host.lab.path(ADMIN_SOCKET), "GET", "/v1/holds")
        return next(iter(get_objects(as_object(document, "holds"), "holds")), None)

    def reserved(self) -> Mapping[str, str]:
        """Return the addresses that host-local has reserved, and for which container ID."""
        script = f"cd /var/lib/cni/networks/{LIST} 2>/dev/null && grep -H . [0-9]*.* *:* 2>/dev/null"
        lines = self.host.lab.run("sh", "-c", script, check=False).stdout.split()
        return dict(line.rpartition(":")[::2] for line in lines if not line.endswith(("eth0", "box0")))

    def is_consistent(self) -> bool:
        """Return whether the key has exactly what the plugin has reserved for it, and no endpoint has it."""
        hold = self.hold()
        if hold is None:
            return not any(owner in self.known for owner in self.reserved().values())
        self.known.add(get_str(hold, "id"))
        held = {one.partition("/")[0] for one in get_strings(hold, "addresses")}
        own = {address for address, owner in self.reserved().items() if owner == get_str(hold, "id")}
        return get_str(hold, "phase") == "held" and find_str(hold, "holder") is None and held == own != set()


def create(keys: Keys) -> bool:
    """Create an endpoint with the key, and attach it: an endpoint that is not attached changes nothing."""
    keys.endpoint = keys.next_endpoint()
    return "Interface" in (keys.endpoint.create() or {}) and keys.endpoint.join() is not None


def change(keys: Keys) -> bool:
    """Change the IPAM section of the list, which still has all addresses."""
    main, *others = LISTS["bridge"]
    ipam = as_object(main["ipam"], "ipam")
    routes: list[JsonValue] = [*get_objects(ipam, "routes"), {"dst": f"192.0.2.{keys.host.next_number() % 256}/32"}]
    keys.host.write_list([{**main, "ipam": {**ipam, "routes": routes}}, *others])
    return True


def delete(keys: Keys) -> bool:
    """Delete it, and wait until the key is without an endpoint."""
    if keys.endpoint.delete() is None:
        return False
    wait_until(lambda: keys.host.is_dead() or _is_settled(keys), "the key is without an endpoint")
    return not keys.host.is_dead()


def _is_settled(keys: Keys) -> bool:
    try:
        return keys.is_consistent()
    except (OSError, http.client.HTTPException):  # it dies just now
        return False


def release(keys: Keys) -> bool:
    """Release what the key has."""
    hold = keys.hold()
    assert hold is not None
    try:
        status, _ = request(keys.host.lab.path(ADMIN_SOCKET), "POST", f"/v1/holds/{get_str(hold, 'id')}/release")
    except (OSError, http.client.HTTPException):
        return False
    return status == http.client.OK


CELLS: Final[Mapping[str, tuple[tuple[Step, ...], Step]]] = {
    "a new key": ((), create),
    "a known key": ((create, delete), create),
    "a changed section": ((create, delete, change), create),
    "the endpoint goes": ((create,), delete),
    "release": ((create, delete), release),
}
"""What is done before, and what the daemon dies in."""


@pytest.mark.parametrize("name", CELLS)
def test_killed_with_keys(lab: Lab, name: str) -> None:
    """After the next start the key has what it had, or nothing if it was new or being released; it works again."""
    before, step = CELLS[name]
    with Host(lab, LISTS["bridge"], Way.DIRECT) as host:
        keys = Keys(host)
        _try(keys, before, step, 0)  # it makes directories, which later ones do not
        boundaries = _try(keys, before, step, 0)
        assert any(one.startswith("write hold") for one in boundaries), boundaries
        for number, boundary in enumerate(boundaries, 1):
            around = boundaries[max(0, number - 2) : number]  # the matrix of endpoints has the others
            if not any("hold" in one or "host-local" in one for one in around):
                continue
            assert _try(keys, before, step, number), f"not reached: {boundary}"


def _try(keys: Keys, before: tuple[Step, ...], step: Step, number: int) -> tuple[str, ...]:
    """Take a step, in which the daemon dies at a boundary if it is not 0; return the boundaries that were reached."""
    host, clean = keys.host, keys.host.lab.state()
    for earlier in before:
        assert earlier(keys)
    hold = keys.hold()
    had = None if hold is None else get_strings(hold, "addresses")
    host.arm(number)
    is_done = step(keys)
    if number:
        host.wait_dead()
    reached = host.disarm()
    if number:
        host.start()
    else:
        assert is_done
    where = f"after {reached[-1:]}"
    keys.endpoint.delete()  # as Docker does, or as its comparison finds out
    wait_until(keys.is_consistent, f"consistent {where}", timeout_s=20)
    kept = keys.hold()
    if had is not None and step is not release:
        assert kept is not None, where
        assert get_strings(kept, "addresses") == had, where
    assert create(keys), where
    assert delete(keys), where
    assert release(keys), where
    assert keys.is_consistent(), where
    host.assert_clean(clean, where)
    return reached
