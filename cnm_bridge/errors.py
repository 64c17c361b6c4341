# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the daemon itself refuses or cannot do.

```
BridgeError
├── BadRequest            the call cannot be understood
├── BadOption             an option is unknown or malformed
├── Refused               understood, but not possible; the text says why and what to do
│   └── CannotPublish     the ports of a container, on this network
├── Interrupted           begun, and not wanted any more
└── EngineUnavailable     the Docker Engine API does not answer
```

The errors of the layers below (`CniError`, `StateError`, `KernelError`) pass through as they are: an operator reads the
plugin's own message. They become an answer to Docker in one place, `cnm_bridge.api.rpc`.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["BadOption", "BadRequest", "BridgeError", "CannotPublish", "EngineUnavailable", "Interrupted", "Refused"]


class BridgeError(Exception):
    """Anything the daemon refuses or cannot do; its text is for the user of `docker`."""


class BadRequest(BridgeError):
    """A call cannot be understood; nothing has been done."""


class BadOption(BridgeError):
    """An option is unknown or malformed; nothing has been done.

    Attributes:
        option: The option's key.
    """

    def __init__(self, option: str, reason: str) -> None:
        super().__init__(f"option {option}: {reason}")
        self.option = option

    @classmethod
    def unknown(cls, option: str, known: Iterable[str]) -> "BadOption":
        """Return the error for an unknown option, with the most similar known one."""
        names = sorted(known)
        near = get_close_matches(option, names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else f"known options: {', '.join(names) or 'none'}"
        return cls(option, f"unknown to cni-bridge; {hint}")


class Refused(BridgeError):
    """A call is understood, but what it asks for is not possible; nothing has been changed."""


class CannotPublish(Refused):
    """A network is not made for publishing the ports of a container; another of its networks may be."""


class Interrupted(BridgeError):
    """A call was begun, and a later call has ended it; what it did is undone with the endpoint."""


class EngineUnavailable(BridgeError):
    """The Docker Engine API did not answer."""
