# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The calls about an endpoint whose link libnetwork moves. All endpoints have the same sandbox, one after the other."""

from enum import StrEnum
from typing import Final

from cni_bridge_spec import get_object
from tests.crash.endpoint import Answer
from tests.crash.host import Host


class Call(StrEnum):
    """The call during which the daemon dies."""

    CREATE = "create"
    JOIN = "join"
    LEAVE = "leave"
    DELETE = "delete"
    DELETE_JOINED = "delete without leave"


_DELETES: Final = frozenset({Call.DELETE, Call.DELETE_JOINED})
_AFTER_JOIN: Final = frozenset({Call.LEAVE, Call.DELETE_JOINED})


class MovedStory:
    """A `tests.crash.matrix.Story`."""

    def __init__(self, host: Host, call: Call) -> None:
        self.name = call.value
        self.endpoint = host.endpoint()
        self.deletes = call in _DELETES
        self.is_refused = False
        self._host = host
        self._call = call

    def prepare(self) -> None:
        """See `Story`."""
        if self._call is Call.CREATE:
            return
        assert get_object(self.endpoint.create() or {}, "Interface")
        if self._call is Call.JOIN:
            return
        assert get_object(self.endpoint.join() or {}, "InterfaceName")
        self.endpoint.move_in()
        if self._call is Call.DELETE:
            self._leave("")

    def send(self) -> Answer:
        """See `Story`."""
        match self._call:
            case Call.CREATE:
                return self.endpoint.create()
            case Call.JOIN:
                return self.endpoint.join()
            case Call.LEAVE:
                return self.endpoint.leave()
            case Call.DELETE | Call.DELETE_JOINED:
                return self.endpoint.delete()

    def check_answer(self, answer: Answer) -> None:
        """See `Story`."""
        assert answer is not None
        assert "Err" not in answer, answer

    def finish(self) -> None:
        """See `Story`."""
        if self._call is Call.LEAVE:
            self.endpoint.move_out()
        if not self.deletes:
            assert self.endpoint.delete() == {}
            self._host.wait_gone(self.endpoint)

    def go_on(self) -> None:
        """See `Story`: nothing."""

    def delete_complete(self, where: str) -> None:
        """See `Story`."""
        if self._call in _AFTER_JOIN:
            assert self.endpoint.has_network(), f"{where}: the container has lost its network"
        else:
            assert get_object(self.endpoint.create() or {}, "Interface"), f"{where}: it cannot be created again"
            assert get_object(self.endpoint.join() or {}, "InterfaceName"), where
            self.endpoint.move_in()
            assert self.endpoint.has_network(), f"{where}: the endpoint does not reach its gateways"
        self._leave(where)
        assert self.endpoint.delete() == {}, where
        self._host.wait_gone(self.endpoint)

    def end(self, where: str) -> None:
        """See `Story`: nothing."""

    def _leave(self, where: str) -> None:
        assert self.endpoint.leave() == {}, where
        self.endpoint.move_out()
