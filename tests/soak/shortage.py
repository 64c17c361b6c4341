# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Whether Docker may refuse an operation because there is no address left for it; pure."""

import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Final

__all__ = ["Taken", "is_short"]

Taken = tuple[str, str]
"""An address that somebody has: the list, and the address."""

_NO_ADDRESS: Final = re.compile(r"no IP addresses available|requested IP|Address already in use|\baddress")


def is_short(
    text: str, wants: Mapping[str, AbstractSet[str]], taken: AbstractSet[Taken], rivals: Mapping[str, int]
) -> bool:
    """Tell whether a refusal is right: of some list all addresses that would do were taken.

    Args:
        text: The error.
        wants: The addresses that would do, by list (`World.wants`).
        taken: What was taken when the operation began or ended, also by endpoints that wait for their DEL.
        rivals: How many other operations of the round want an address of each list; each may have had one meanwhile.
    """
    if not _NO_ADDRESS.search(text):
        return False
    return any(
        len({address for of, address in taken if of == name} & set(would_do)) + rivals.get(name, 0) >= len(would_do)
        for name, would_do in wants.items()
    )
