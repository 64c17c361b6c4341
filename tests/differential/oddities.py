# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Unusual values and versions, which are put into documents; chosen by a seed."""

import copy
import random
from collections.abc import Sequence
from typing import Any, Final

VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
_ODD_VALUES: Final[Sequence[Any]] = (
    None, True, False, 0, 1, -1, 1.5, 2**53 + 1, 1e300, "", "x", "true", "TRUE", "ü", "<&>", "\u2028", "a b", "../x",
    [], [1], [None], ["x"], [[]], {}, {"x": 1}, {"": ""},
)  # fmt: skip
ODD_VERSIONS: Final = ("", "1", "1.0", "1.1", "0.3", "2.0.0", "1.2.0", "99.0.0", "1.0.0 ", "v1.0.0", "1.0.f", "-1.0.0")


def odd(chance: random.Random) -> Any:
    """Return an unusual value."""
    return copy.deepcopy(chance.choice(_ODD_VALUES))


def spoil(chance: random.Random, document: Any) -> None:
    """Replace, remove or add one value somewhere in a document."""
    place = document
    while chance.random() < 0.6:
        inner = [value for value in _values(place) if isinstance(value, dict | list) and value]
        if not inner:
            break
        place = chance.choice(inner)
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not keys:
        return
    key = chance.choice(keys)
    match chance.randrange(4):
        case 0:
            del place[key]
        case 1 if isinstance(place, dict) and isinstance(key, str):
            place[chance.choice((key.upper(), key.capitalize(), key + "x", ""))] = place.pop(key)
        case _:
            place[key] = odd(chance)


def _values(place: Any) -> list[Any]:
    return list(place.values()) if isinstance(place, dict) else list(place)
