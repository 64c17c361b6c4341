# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A Docker host without Docker: the daemon, its endpoints, and orders to die at a boundary."""

import asyncio
import http.client
import itertools
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final, Self

from cni_bridge_spec import JsonObject, as_object
from cni_bridge_state.store import Store
from cnm_bridge.core.settings import Settings
from tests.crash.boundaries import ARMED, DEAD, TRACE, WRITES
from tests.crash.endpoint import NETWORK, Answer, Endpoint
from tests.crash.lists import GATEWAYS
from tests.crash.neighbour import NEIGHBOUR_SANDBOX, PORTMAP, Neighbour, connect_outside
from tests.crash.sandbox import Sandbox
from tests.crash.way import Way
from tests.lab import PLUGIN_SOCKET, Lab, LabState, losses, wait_until
from tests.lab.unix_http import is_answering

ENGINE: Final = "28.5"
LIST: Final = "crash"
SANDBOX: Final = "box"

_DIRECTORY: Final = "/run/crash"
_STAGING: Final = "/run/cni-bridge/netns"
_START_LIMIT_S: Final = 60.0
"""Recovery may take ten seconds before the first answer, and the machine may be busy."""


class Host:
    """A lab with the daemon, one network, two sandboxes, and a neighbour whose network must never be interrupted.

    Args:
        lab: A lab without dockerd.
        plugins: The network's configuration list.
        way: How endpoints are attached.
        gateways: What a joined container reaches.
        command: What starts the daemon; without one, it has boundaries.
        options: Further options of the daemon.
    """

    def __init__(
        self,
        lab: Lab,
        plugins: Sequence[JsonObject],
        way: Way = Way.MOVE,
        *,
        gateways: Sequence[str] = GATEWAYS,
        command: Sequence[str] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        self.lab = lab
        self.gateways = gateways
        self.way = way
        self._numbers = itertools.count(1)
        self._orders = itertools.count(1)
        self._command = (*(command or (sys.executable, "-m", "tests.crash.daemon", _DIRECTORY, "serve")), *options)
        lab.run("mkdir", "-p", _DIRECTORY)
        connect_outside(lab)
        Sandbox(lab, SANDBOX)
        self._store_release()
        lab.run(
            "mkdir", "-p", "-m", "700", _STAGING
        )  # the first cell would have a boundary that later ones do not have
        self.start()
        generic = {"com.docker.network.generic": {"cni.network": LIST, "cni.attach": way.option}}
        self.write_list([*plugins, PORTMAP])
        assert self.call("CreateNetwork", {"NetworkID": NETWORK, "Options": generic}) == {}
        self.neighbour = Neighbour(lab, self.endpoint(NEIGHBOUR_SANDBOX), Sandbox(lab, NEIGHBOUR_SANDBOX))
        self.write_list(plugins)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.disarm()

    def endpoint(self, sandbox: str = SANDBOX) -> Endpoint:
        """Return an endpoint that does not exist yet."""
        return Endpoint(
            self.lab,
            self.call,
            self.next_number(),
            sandbox,
            options=self.way.endpoint_options,
            gateways=self.gateways,
        )

    def next_number(self) -> int:
        """Return a number that was not returned before."""
        return next(self._numbers)

    def write_list(self, plugins: Sequence[JsonObject]) -> None:
        """Write the network's configuration list, for the endpoints that are created from now on."""
        self.lab.write(
            f"/etc/cni/net.d/{LIST}.conflist", {"cniVersion": "1.0.0", "name": LIST, "plugins": list(plugins)}
        )

    def _store_release(self) -> None:
        """Store an engine's version, as if that engine had answered and did not now: it boots."""
        store = Store.open(self.lab.path(str(Settings().state_dir)))
        try:
            asyncio.run(store.put_engine_version(ENGINE))
        finally:
            store.close()

    def call(self, method: str, body: JsonObject | None = None) -> Answer:
        """Call the daemon as dockerd does; return None if it dies meanwhile."""
        try:
            _, answer = self.lab.request(PLUGIN_SOCKET, "POST", f"/NetworkDriver.{method}", body, timeout_s=60)
        except (OSError, http.client.HTTPException):
            return None
        return as_object(answer, method)

    def assert_clean(self, before: LabState, where: str) -> None:
        """Assert that the lab is as it was before, and that the neighbour has lost nothing."""
        left = self.lab.wait_clean(before)
        removed = losses(before, self.lab.state())
        found = [f"left behind:\n{left}"] if left else []
        found += [f"removed:\n{removed}"] if removed else []
        found += self.neighbour.differences()
        assert not found, "\n".join((where, *found))

    # Death

    def arm(self, boundary: int) -> None:
        """Start a count; the daemon dies at this boundary of it, at none if it is 0."""
        self.lab.path(f"{_DIRECTORY}/{TRACE}").unlink(missing_ok=True)
        part = self.lab.path(f"{_DIRECTORY}/part")
        part.write_text(f"order{next(self._orders)} {boundary}", encoding="ascii")
        part.rename(self.lab.path(f"{_DIRECTORY}/{ARMED}"))

    def disarm(self) -> tuple[str, ...]:
        """End the count and return the names of the boundaries that were reached."""
        self.lab.path(f"{_DIRECTORY}/{ARMED}").unlink(missing_ok=True)
        return self._lines(TRACE)

    def start(self) -> None:
        """Start the daemon's first or next run, and wait until it answers."""
        assert not self.start_to_die(), "the daemon died without an order to"

    def start_to_die(self) -> bool:
        """Start the daemon's next run and return whether it died at its boundary before it answered."""
        if self.lab.daemon is None:
            self.lab.start_daemon(command=self._command, timeout_s=_START_LIMIT_S)
            return False
        assert self.is_dead(), "the daemon still runs, or was stopped"
        self.lab.path(f"{_DIRECTORY}/{DEAD}").unlink()
        answers = partial(is_answering, self.lab.path(PLUGIN_SOCKET), "POST", "/Plugin.Activate")
        self.lab.daemon.wait_ready(lambda: answers() or self.is_dead(), _START_LIMIT_S)
        return self.is_dead()

    def is_dead(self) -> bool:
        """Return whether SIGKILL has ended the daemon's run."""
        return self.lab.path(f"{_DIRECTORY}/{DEAD}").exists()

    def wait_dead(self) -> None:
        """Wait until the daemon has died at its boundary."""
        assert self.lab.daemon is not None
        self.lab.daemon.wait_ready(self.is_dead, 10)

    # What the store has

    def phase(self, endpoint: Endpoint) -> str | None:
        """Return the phase of an endpoint's record as it was last written, None without a record."""
        last = None
        for line in self._lines(WRITES):
            key, _, phase = line.partition(" ")
            if key == f"endpoint/{endpoint.id}":
                last = phase
        return None if last == "gone" else last

    def wait_gone(self, endpoint: Endpoint) -> None:
        """Wait until a deleted endpoint has no record."""
        wait_until(lambda: self.phase(endpoint) is None, f"the end of endpoint {endpoint.id}")

    def endpoint_ids(self) -> tuple[str, ...]:
        """Stop the daemon and read the IDs in the store."""
        self.lab.stop_daemon()
        store = Store.open(self.lab.path(str(Settings().state_dir)))
        try:
            return tuple(record.id for record in store.endpoints())
        finally:
            store.close()

    def _lines(self, name: str) -> tuple[str, ...]:
        try:
            return tuple(self.lab.path(f"{_DIRECTORY}/{name}").read_text("utf-8").splitlines())
        except FileNotFoundError:
            return ()
