# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Docker's API as the soak uses it; a call is some fifty milliseconds faster than with the docker command."""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cni_bridge_spec import JsonObject, JsonValue, as_object, find_str, get_object, get_objects, get_str
from cni_invoker.documents.jsontypes import get_int
from tests.lab import unix_http
from tests.soak.docker_calls import DRIVER, call_of
from tests.soak.docker_view import DockerView
from tests.soak.lists import OF_DOCKER
from tests.soak.operations import Kind, Operation
from tests.soak.shortage import Taken

_LIMIT_S: Final = 120.0
"""dockerd waits some fifteen seconds for an absent plugin, and several times in one operation."""

_CRASH_S: Final = 3.0
"""How long a container may be down before it counts as not restarted by its policy; Docker waits 100 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an operation ended.

    Attributes:
        status: The status of Docker's answer, None if the connection broke.
        text: Docker's message, or the error.
        taken: If it failed and needed an address of a small pool, those that were in use (`Machine.perform`).
        took_s: How long it took.
    """

    status: int | None
    text: str = ""
    taken: frozenset[Taken] = frozenset()
    took_s: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether it completed; 304 means that nothing had to be changed."""
        return self.status is not None and (self.status < HTTPStatus.MULTIPLE_CHOICES or self.status == 304)

    @property
    def is_refused(self) -> bool:
        """Whether Docker refused it."""
        return self.status == HTTPStatus.FORBIDDEN

    def __str__(self) -> str:
        if self.is_done:
            return "done"
        return f"{'broken off' if self.status is None else self.status}: {self.text}"


class DockerHost:
    """Docker's API on a socket.

    Args:
        socket: Where it is.
        kill_process: Sends SIGKILL to a process, by the ID that Docker shows.
    """

    def __init__(self, socket: Path, kill_process: Callable[[int], None]) -> None:
        self._socket = socket
        self._kill_process = kill_process

    def perform(self, operation: Operation) -> Outcome:
        """Do a whole operation; any number of threads may call this."""
        began = time.monotonic()
        try:
            outcome = self._perform(operation)
        except (OSError, http.client.HTTPException) as exc:
            outcome = Outcome(status=None, text=f"{type(exc).__name__}: {exc}")
        return replace(outcome, took_s=time.monotonic() - began)

    def look(self) -> DockerView:
        """Return what Docker has, without objects that are removed meanwhile.

        Raises:
            OSError, http.client.HTTPException: dockerd does not answer.
        """
        drivers = [DRIVER, *(driver.name for driver in OF_DOCKER.values())]
        filters = quote(json.dumps({"driver": drivers}))
        # one by one: the lists lack objects of failed operations
        return DockerView.from_documents(
            self._each("/containers/json?all=1", "/containers/{}/json", "State"),
            self._each(f"/networks?filters={filters}", "/networks/{}", "Scope"),
        )

    def detach(self, network: str, container: str) -> Outcome:
        """Make Docker forget an endpoint of a container that no longer exists."""
        body: JsonObject = {"Container": container, "Force": True}
        return self._request("POST", f"/networks/{network}/disconnect", body)

    def _perform(self, operation: Operation) -> Outcome:
        match operation.kind:
            case Kind.CRASH:
                return self._crash(operation.writes)
            case Kind.RUN | Kind.PARTNER:
                outcome = self._create(operation)
                return self._request(*call_of(replace(operation, kind=Kind.START))) if outcome.is_done else outcome
            case Kind.CREATE:
                return self._create(operation)
            case Kind.UPDATE:
                return self._update(operation)
        return self._request(*call_of(operation))

    def _create(self, operation: Operation) -> Outcome:
        """Make a container, and connect it to its other networks; engines before 25 accept only one in the request."""
        outcome = self._request(*call_of(replace(operation, kind=Kind.CREATE)))
        for network in operation.others:
            if outcome.is_done:
                connect = Operation(kind=Kind.CONNECT, container=operation.container, network=network)
                outcome = self._request(*call_of(connect))
        return outcome

    def _update(self, operation: Operation) -> Outcome:
        """Make a container again as updaters do: with the MAC that Docker has shown of the previous one."""
        mac = self._mac(operation)
        for kind in (Kind.STOP, Kind.REMOVE):
            outcome = self._request(*call_of(Operation(kind=kind, container=operation.container)))
            if not outcome.is_done:
                return outcome
        outcome = self._perform(replace(operation, kind=Kind.RUN, mac=mac or None))
        if outcome.is_done and (found := self._mac(operation)) != mac:
            return Outcome(status=HTTPStatus.INTERNAL_SERVER_ERROR, text=f"it has the MAC {found} instead of {mac}")
        return outcome

    def _mac(self, operation: Operation) -> str:
        """Return the MAC that Docker shows of a container on an operation's network; "" without one."""
        found = as_object(self._get(f"/containers/{operation.writes}/json"), "the container")
        networks = get_object(get_object(found, "NetworkSettings"), "Networks")
        return get_str(get_object(networks, operation.network or ""), "MacAddress")

    def _crash(self, container: str) -> Outcome:
        """Kill a container's process, and wait until Docker has restarted or stopped the container."""
        before = self._process(container)
        if not before.process:
            return Outcome(status=None, text="it does not run")
        self._kill_process(before.process)
        deadline = time.monotonic() + _LIMIT_S
        down_since: float | None = None
        while time.monotonic() < deadline:
            now = self._process(container)
            if now.process and now.process != before.process:
                return Outcome(status=HTTPStatus.OK)
            if now.process or now.state == "restarting":
                down_since = None
            elif not before.restarts:
                return Outcome(status=HTTPStatus.OK)
            else:
                down_since = down_since or time.monotonic()
                if time.monotonic() - down_since > _CRASH_S:
                    return Outcome(status=HTTPStatus.INTERNAL_SERVER_ERROR, text=f"it stays {now.state}")
            time.sleep(0.05)
        return Outcome(status=HTTPStatus.GATEWAY_TIMEOUT, text="Docker has not noticed")

    def _process(self, container: str) -> "_Process":
        found = as_object(self._get(f"/containers/{container}/json"), "the container")
        if "State" not in found:
            return _Process(state="gone", process=0, restarts=False)
        state = get_object(found, "State")
        policy = get_str(get_object(get_object(found, "HostConfig"), "RestartPolicy"), "Name")
        status = get_str(state, "Status")
        process = get_int(state, "Pid") if status == "running" else 0
        return _Process(state=status, process=process, restarts=policy != "no")

    def _each(self, listed: str, target: str, key: str) -> Iterator[JsonObject]:
        """Yield the documents of the objects in a list; that of an object that was just removed lacks the key."""
        for item in get_objects({"listed": self._get(listed)}, "listed"):
            found = self._get(target.format(get_str(item, "Id")))
            if isinstance(found, Mapping) and key in found:
                yield found

    def _get(self, target: str) -> JsonValue:
        return unix_http.request(self._socket, "GET", target, timeout_s=_LIMIT_S)[1]

    def _request(self, method: str, target: str, body: JsonValue = None) -> Outcome:
        status, answer = unix_http.request(self._socket, method, target, body, timeout_s=_LIMIT_S)
        text = find_str(answer, "message") if isinstance(answer, Mapping) else None
        return Outcome(status=status, text=text or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    """A container's first process, 0 if it does not run, and whether Docker restarts it."""

    state: str
    process: int
    restarts: bool
