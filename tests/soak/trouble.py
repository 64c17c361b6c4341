# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The kinds of trouble that a soak can be run with or without, to isolate what a difference comes from; pure."""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

from tests.soak.lists import HUNG, POOL, SLOW


class Trouble(StrEnum):
    """A kind of trouble. Those of `ROUNDS` have rounds of their own."""

    SLOW = "slow"
    """A list whose ADD takes longer."""
    HANGING = "hanging"
    """Starts on a list whose ADD hangs until it is killed, up to twice as many as plugins may run; others beside."""
    BURST = "burst"
    """Twice as many containers as plugins may run are started at once, or all are restarted."""
    REBOOT = "reboot"
    """A reboot with restart policies, while nine of ten addresses of a pool are in use."""
    STOP = "stop"
    """SIGSTOP of the daemon or a plugin, and after a while SIGCONT."""
    MAC = "mac"
    """Containers on `macvlan` choose their MAC address."""
    PARTNER = "partner"
    """Containers share the network namespace of others."""
    UPDATE = "update"
    """Containers are made again with the MAC, and the address if they chose it, of the previous one."""


_LISTS: Final[Mapping[Trouble, str]] = {Trouble.SLOW: SLOW, Trouble.HANGING: HUNG, Trouble.REBOOT: POOL}

ROUNDS: Final[Mapping[Trouble, int]] = {
    Trouble.HANGING: 2,
    Trouble.BURST: 2,
    Trouble.REBOOT: 1,
    Trouble.STOP: 4,
}
"""How often each of them is chosen, in proportion."""


def with_lists(lists: Iterable[str], troubles: Collection[Trouble]) -> tuple[str, ...]:
    """Return the lists without those of any trouble, and with those of the given ones."""
    chosen = (name for trouble, name in _LISTS.items() if trouble in troubles)
    return (*(name for name in lists if name not in _LISTS.values()), *chosen)
