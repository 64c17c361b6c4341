# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The calls about an endpoint whose plugins run in its sandbox. Each endpoint has a sandbox of its own."""

from enum import StrEnum
from typing import Final

from cni_bridge_spec import get_str
from tests.crash.endpoint import Answer
from tests.crash.host import Host
from tests.crash.sandbox import Sandbox
from tests.lab import LabError, wait_until
from tests.system.dhcp_lan import Lan

__all__ = ["FAILING", "LeaseStory", "SandboxCall", "SandboxStory"]

FAILING: Final = "failing"
"""The plugin at the end of the list whose ADD fails."""


class SandboxCall(StrEnum):
    """The call during which the daemon dies. The container runs before and after, unless the value says otherwise."""

    CREATE = "create"
    JOIN = "join"
    FAILED_JOIN = "join with a failing plugin"
    DISCONNECT = "leave"
    DELETE_JOINED = "delete without leave"
    END = "leave after the container's end"
    DELETE = "delete after the container's end"


_DELETES: Final = frozenset({SandboxCall.DELETE, SandboxCall.DELETE_JOINED})
_ENDED: Final = frozenset({SandboxCall.END, SandboxCall.DELETE})
_UNJOINED: Final = frozenset({SandboxCall.CREATE, SandboxCall.JOIN, SandboxCall.FAILED_JOIN})


class SandboxStory:
    """A `tests.crash.matrix.Story`.

    Args:
        host: Where it happens.
        call: The call.
    """

    def __init__(self, host: Host, call: SandboxCall) -> None:
        self.name = call.value
        self.deletes = call in _DELETES
        self.is_refused = call is SandboxCall.FAILED_JOIN
        self.endpoint = host.endpoint(f"box{host.next_number()}")
        self._host = host
        self._call = call
        self._sandbox: Sandbox | None = None
        self._before = ""

    def prepare(self) -> None:
        """See `Story`."""
        self._sandbox = Sandbox(self._host.lab, self.endpoint.sandbox)
        self._before = self._sandbox.look()
        if self._call is SandboxCall.CREATE:
            return
        self._create("")
        if self._call in _UNJOINED:
            return
        self._join("")
        if self._call in _ENDED:
            self._sandbox.end_process()
        if self._call is SandboxCall.DELETE:
            assert self.endpoint.leave() == {}

    def send(self) -> Answer:
        """See `Story`."""
        match self._call:
            case SandboxCall.CREATE:
                return self.endpoint.create()
            case SandboxCall.JOIN | SandboxCall.FAILED_JOIN:
                return self.endpoint.join()
            case SandboxCall.DISCONNECT | SandboxCall.END:
                return self.endpoint.leave()
            case SandboxCall.DELETE | SandboxCall.DELETE_JOINED:
                return self.endpoint.delete()

    def check_answer(self, answer: Answer) -> None:
        """See `Story`."""
        assert answer is not None
        if self._call is SandboxCall.FAILED_JOIN:
            assert f'"{FAILING}"' in get_str(answer, "Err")
        else:
            assert "Err" not in answer, answer

    def finish(self) -> None:
        """See `Story`."""
        if not self.deletes:
            self._delete("")
        self.go_on()

    def go_on(self) -> None:
        """Remove the sandbox of a container that has ended."""
        if self._call in _ENDED and self._sandbox is not None:
            self._sandbox.remove()
            self._sandbox = None

    def delete_complete(self, where: str) -> None:
        """Join an endpoint that has not been joined; a joined one has its network until a call ends that."""
        if self._call in _UNJOINED and self._host.phase(self.endpoint) == "ready":
            self._create(where)
            if self._call is not SandboxCall.FAILED_JOIN:
                self._join(where)
        if self._call in _UNJOINED | {SandboxCall.DELETE_JOINED} and self._host.phase(self.endpoint) == "joined":
            assert self.endpoint.has_network(), f"{where}: the container has no network"
        if self._call not in {SandboxCall.JOIN, SandboxCall.DELETE_JOINED}:  # others begin with Leave
            assert self.endpoint.leave() == {}, where
        self._delete(where)

    def end(self, where: str) -> None:
        """The sandbox of a running container is as it was before."""
        if self._sandbox is not None:
            after = self._sandbox.look()
            assert after == self._before, f"{where}; the sandbox is\n{after}\nand was\n{self._before}"
            self._sandbox.remove()

    def _create(self, where: str) -> None:
        answer = self.endpoint.create()
        assert answer is not None, where
        assert "Interface" in answer, f"{where}: {answer}"

    def _join(self, where: str) -> None:
        answer = self.endpoint.join()
        assert answer is not None, where
        assert "InterfaceName" not in answer, f"{where}: the link is moved"
        assert "Gateway" in answer, f"{where}: {answer}"
        self.endpoint.move_in()

    def _delete(self, where: str) -> None:
        assert self.endpoint.delete() == {}, where
        self._host.wait_gone(self.endpoint)


class LeaseStory(SandboxStory):
    """The same with a lease of a DHCP server, which at the end has only the leases that it had before.

    Args:
        host: Where it happens.
        call: The call.
        lan: The server.
    """

    def __init__(self, host: Host, call: SandboxCall, lan: Lan) -> None:
        super().__init__(host, call)
        self._lan = lan
        self._leases = lan.leases()

    def end(self, where: str) -> None:
        """See `SandboxStory`."""
        super().end(where)
        try:
            wait_until(lambda: self._lan.leases() == self._leases, "RELEASE")
        except LabError as exc:
            daemon = self._lan.daemon
            raise AssertionError(f"{where}: {exc}; {daemon.log() if daemon else None}") from exc
