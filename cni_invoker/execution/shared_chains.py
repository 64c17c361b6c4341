# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Lets the first users of the iptables chains that plugins share go one by one, on the whole host.

`portmap`, `firewall`, and masquerading in `bridge` and `ptp` work with chains of the host: whoever comes first makes
them and jumps to them from the kernel's own. They look first and then write, so several that come first at once each
write: 16 parallel first ADDs left duplicate jumps in 4 of 4 trials. Once the chains are there, parallel is fine.

What is the first is known to each object for itself; the lock is for all of them, in whichever process they are. So a
process that has just begun waits for the first ADD of another, and its own first ADD goes alone as well.
"""

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_interface
from pathlib import Path
from typing import Final

from cni_invoker.attachment import Attachment
from cni_invoker.config.lists import PluginConfiguration
from cni_invoker.results.result import Result
from spec import JsonValue

__all__ = ["DEFAULT_LOCK_DIR", "SharedChains"]

log = logging.getLogger(__name__)

DEFAULT_LOCK_DIR: Final = Path("/run/cni-invoker")
"""For all runtimes of a host. The chains do not outlive a boot either."""

_LOCK: Final = "shared-chains.lock"
_PAUSE_S: Final = 0.005
"""Between two attempts to get the lock; a plugin takes some tens of milliseconds."""

_Kind = tuple[str, int | str]
"""Whose chains, and of which address family: 4 or 6, or a word for those that are only known afterwards."""


class SharedChains:
    """Knows which shared chains have been made since this object was.

    One lock, held by at most one first ADD on the host; nothing else is waited for while another one holds it.

    Args:
        directory: Where the lock of all processes is; it is made when it is first needed. None keeps only those apart
            that use this object. Where no lock can be had, that is said once, and it is as with None: a rule that is
            there twice does less harm than a host without containers.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._made: set[_Kind] = set()
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def serialize_first_add(
        self, plugin: PluginConfiguration, attachment: Attachment, prev_result: Result | None
    ) -> AsyncIterator[None]:
        """Run the body, the ADD of `plugin`, alone if it is the first of its kind to succeed.

        Args:
            plugin: The plugin.
            attachment: What it is asked to attach.
            prev_result: What it is told of the plugins before it.
        """
        kinds = _kinds(plugin, attachment, prev_result)
        if kinds <= self._made:
            yield
            return
        async with self._lock:
            if not kinds <= self._made:
                async with self._alone_on_the_host():
                    yield
                self._made |= kinds
                return
        yield

    @asynccontextmanager
    async def _alone_on_the_host(self) -> AsyncIterator[None]:
        descriptor = self._open()
        if descriptor is None:
            yield
            return
        try:
            # Not by waiting in a thread, which cannot be cancelled.
            while not _take(descriptor):  # noqa: ASYNC110  # other processes set no event
                await asyncio.sleep(_PAUSE_S)
            yield
        finally:
            os.close(descriptor)

    def _open(self) -> int | None:
        if self._directory is None:
            return None
        try:
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            log.warning("lock.unavailable", extra={"directory": str(self._directory), "reason": exc.strerror})
            self._directory = None
            return None


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kinds(plugin: PluginConfiguration, attachment: Attachment, prev_result: Result | None) -> frozenset[_Kind]:
    """Return which shared chains an ADD of `plugin` makes if it is the first, empty for none.

    IPv4 and IPv6 have chains of their own, made when an address of the family comes along.
    """
    match plugin.type:
        case "firewall":
            families = _families_of(prev_result)
        case "portmap" if "portMappings" in plugin.capabilities and attachment.capability_args.get("portMappings"):
            families = _families_of(prev_result)
        case "bridge" | "ptp" if plugin.document.get("ipMasq"):
            return frozenset(("masquerade", family) for family in _families_to_come(plugin, attachment))
        case _:
            return frozenset()
    return frozenset((plugin.type, family) for family in families)


def _families_of(result: Result | None) -> frozenset[int | str]:
    found: frozenset[int | str] = frozenset(ip.address.version for ip in result.ips) if result else frozenset()
    return found or frozenset({"unknown"})


def _families_to_come(plugin: PluginConfiguration, attachment: Attachment) -> frozenset[int | str]:
    """Return the families of the addresses that IPAM will give, or its name where only IPAM knows them."""
    asked: tuple[JsonValue, ...] = tuple(attachment.capability_args.get(key) for key in ("ips", "ipRanges"))
    arguments = [value for key, value in attachment.args if key == "IP"]
    found = frozenset(_versions([plugin.document.get("ipam"), {"address": [*asked, *arguments]}]))
    return found or frozenset({f"of {plugin.ipam_type}"})


_ADDRESSES: Final = frozenset({"address", "addresses", "ipRanges", "ranges", "subnet"})
"""Where host-local and static have what they give away."""


def _versions(value: JsonValue) -> Iterator[int]:
    """Give the IP version of every address in a value, as far as its keys say that it will be given away."""
    match value:
        case str():
            for text in value.split(","):  # CNI_ARGS may have several
                with suppress(ValueError):
                    yield ip_interface(text.strip()).version
        case Mapping():
            for key in _ADDRESSES & value.keys():
                yield from _versions(value[key])
        case Sequence():
            for inner in value:
                yield from _versions(inner)
