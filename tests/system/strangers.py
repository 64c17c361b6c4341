# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""A local user without any right, who has made a network namespace and puts into it whatever confuses others."""

import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Final

from tests.lab import Lab, wait_until

__all__ = ["NAMESPACE", "USER", "Stranger", "beside"]

USER: Final = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
NAMESPACE: Final = ("unshare", "--user", "--map-root-user", "--net", "sh", "-euc")
_UP: Final = "/tmp/stranger-is-up"
_STAY: Final = f"touch {_UP}; exec sleep 3600"
_LINKS: Final = 600
"""So many links that the kernel needs several messages to list them, and notices changes in between."""


class Stranger(StrEnum):
    """What the namespace contains."""

    ODD_NAMES = "names that are not UTF-8"
    FORGED = "alternative names like ours, and addresses of our pool"
    PASSING = "links that come and go"


@contextmanager
def beside(lab: Lab, what: Stranger, *, attachments: Iterable[str], addresses: Iterable[str]) -> Iterator[None]:
    """Let a stranger live on the host for the length of the block.

    Args:
        lab: The host.
        what: What the stranger does.
        attachments: The IDs that are forged; any user can read those of mounts in `/proc/self/mountinfo`.
        addresses: The addresses that the stranger's link has.
    """
    process = lab.spawn(*USER, *NAMESPACE, _script(what, attachments, addresses))
    try:
        wait_until(lambda: lab.path(_UP).exists(), "the stranger's namespace")
        yield
    finally:
        process.close()
        lab.remove(_UP)


def _script(what: Stranger, attachments: Iterable[str], addresses: Iterable[str]) -> str:
    """Return what is executed in the namespace."""
    match what:
        case Stranger.ODD_NAMES:
            name = r'"$(printf "\377\376x")"'
            return (
                f"ip link add {name} type veth peer name peer; ip link property add dev {name} altname {name}y; {_STAY}"
            )
        case Stranger.FORGED:
            lines = ["link add forged type veth peer name peer", "link set forged up"]
            lines += [f"link property add dev forged altname cni-bridge-{one}" for one in attachments]
            lines += [f"address add {one} dev forged" for one in addresses]
            return f"printf '%s\\n' {shlex.join(lines)} | ip -batch -; {_STAY}"
        case Stranger.PASSING:
            stay = f"for i in $(seq {_LINKS}); do echo link add stays$i type veth peer name peer$i; done | ip -batch -"
            passing = 'yes "link add pass$i type veth peer name peer$i\nlink delete pass$i" | ip -batch -'
            return f"{stay}; for i in a b c d; do {passing} & done; {_STAY}"
