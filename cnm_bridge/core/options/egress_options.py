# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The options `cni.egress.*` of guarded networks, whose containers reach only what is allowed; pure.

The syntax of an entry is the business of the plugin `egress`, which is asked when the network is made.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar

from cnm_bridge.core.errors import BadOption

ALLOW: Final = "cni.egress.allow"
_AUDIT: Final = "cni.egress.audit"
OTHER_NETWORKS: Final = "cni.egress.other-networks"
_NET_ADMIN: Final = "cni.egress.net-admin"
EGRESS_OF_NETWORKS: Final = (_AUDIT, OTHER_NETWORKS, _NET_ADMIN)
"""Those that a container cannot give."""
EGRESS_OPTIONS: Final = frozenset({ALLOW, *EGRESS_OF_NETWORKS})
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}
_SEPARATORS: Final = re.compile(r"[,\s]+")
_T = TypeVar("_T")


class OtherNetworks(StrEnum):
    """What happens if a container is also on a network that is neither guarded nor internal."""

    REFUSE = "refuse"
    """The container does not start; a network that is connected later is reported."""
    ALLOW = "allow"
    DISCONNECT = "disconnect"
    """As REFUSE, and the container is taken off a network that is connected later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressOptions:
    """What a network's options say about what its containers reach.

    Attributes:
        allow: The entries of the allow-list.
        audit: Whether everything passes, and what the list does not have is logged.
        other_networks: What happens if a container is also on a network that is neither guarded nor internal.
        allows_net_admin: Whether a container may have the capabilities with which it can change the host's network.
    """

    allow: tuple[str, ...] = ()
    audit: bool = False
    other_networks: OtherNetworks = OtherNetworks.REFUSE
    allows_net_admin: bool = False

    @property
    def guards(self) -> bool:
        """Whether the network is guarded because of its options, whatever its list has."""
        return bool(self.allow) or self.audit


def parse_egress(options: Mapping[str, str]) -> EgressOptions:
    """Parse the options of a network.

    Raises:
        BadOption: A value is invalid.
    """
    return EgressOptions(
        allow=parse_entries(options),
        audit=_choose(_AUDIT, options.get(_AUDIT, "false"), _BOOLEANS),
        other_networks=_choose(
            OTHER_NETWORKS, options.get(OTHER_NETWORKS, "refuse"), {one.value: one for one in OtherNetworks}
        ),
        allows_net_admin=_choose(_NET_ADMIN, options.get(_NET_ADMIN, "refuse"), {"refuse": False, "allow": True}),
    )


def parse_entries(options: Mapping[str, str]) -> tuple[str, ...]:
    """Return the entries of an allow-list, such as `api.example.com, 10.0.5.7:5432`; none without the option.

    Raises:
        BadOption: There is no entry in it.
    """
    if ALLOW not in options:
        return ()
    entries = tuple(filter(None, _SEPARATORS.split(options[ALLOW])))
    if not entries:
        raise BadOption(ALLOW, "is empty; give names, addresses or networks, such as api.example.com, or leave it out")
    return entries


def _choose(option: str, text: str, known: Mapping[str, _T]) -> _T:
    if text not in known:
        raise BadOption(option, f"{text!r} is neither {' nor '.join(known)}")
    return known[text]
