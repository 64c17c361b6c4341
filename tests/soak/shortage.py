# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether Docker may refuse an operation because no address is free; pure."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

Taken = tuple[str, str]
"""An address in use: the list, and the address. A device of the host is in use with the only address of its list."""

_NO_ADDRESS: Final = re.compile(
    r"no IP addresses available|failed to find host device|requested IP|Address already in use|\baddress"
)


def is_short(
    text: str, wants: Mapping[str, AbstractSet[str]], taken: AbstractSet[Taken], rivals: Mapping[str, int]
) -> bool:
    """Return whether a refusal is right: all acceptable addresses of some list were in use.

    Args:
        text: The error.
        wants: The acceptable addresses, by list (`World.wants`).
        taken: What was in use when the operation began or ended, also by endpoints whose teardown is pending.
        rivals: How many other operations of the round need an address of each list; each may have used one meanwhile.
    """
    if not _NO_ADDRESS.search(text):
        return False
    return any(
        len({address for of, address in taken if of == name} & set(would_do)) + rivals.get(name, 0) >= len(would_do)
        for name, would_do in wants.items()
    )
