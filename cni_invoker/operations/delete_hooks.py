# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a caller that manages links and rules itself does during a DEL."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

__all__ = ["DeleteHooks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteHooks:
    """What `Runtime.delete` calls around its executions; None: nothing.

    Attributes:
        is_needed: Awaited with the type of a plugin that finds its rules by address alone (`firewall`), just before
            each execution. It returns whether another container needs these rules now (`needs_rules`); if so, the
            plugin receives no result and leaves them. Its exception is raised; that plugin and those before it have not
            run then.
        restore: Awaited before a failed plugin is run once more. It puts back the link, which the plugin may have
            deleted and by which it finds the rest of its work (bridge, ptp: masquerading). Its exception is raised.
        slot: Returns the slot that is held during an execution, instead of one of the runtime's DEL slots. So a caller
            that deletes in the background does not block others with plugins that hang.
    """

    is_needed: Callable[[str], Awaitable[bool]] | None = None
    restore: Callable[[], Awaitable[object]] | None = None
    slot: Callable[[], AbstractAsyncContextManager[None]] | None = None
