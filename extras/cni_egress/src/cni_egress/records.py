# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the plugin remembers of each attachment: its addresses and its policy, as files.

```
/run/cni-egress/attachments/CONTAINER@IFNAME.json      one for each attachment
/run/cni-egress/sources/10.66.0.5                      a symbolic link to the file of the address's attachment
/run/cni-egress/lock                                   held by a process that changes files and tables
/run/cni-egress/responder                              locked for as long as the responder runs
```

A record is written before the kernel has a rule of its attachment, and removed when it has none any more. So DEL and GC
find whatever may exist, and the tables can be made again. No attachment outlives a reboot, and neither do the files.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from typing import Final

from cni_egress.policy import BadEntry, IpNetwork, Policy
from cni_invoker.documents.jsontypes import (
    JsonError,
    JsonObject,
    as_object,
    find_str,
    get_int,
    get_object,
    get_str,
    get_strings,
    parse_json,
    render_json,
)

__all__ = ["DEFAULT_MARK", "DIRECTORY", "BadRecord", "IpAddress", "Record", "RecordGone", "Records"]

IpAddress = IPv4Address | IPv6Address

DIRECTORY: Final = Path("/run/cni-egress")
DEFAULT_MARK: Final = 0x10000000
_SUFFIX: Final = ".json"
_PART: Final = ".part"


class RecordGone(Exception):  # called after what happened
    """The attachment of a record has been deleted, or its policy has been changed, since the record was read."""


class BadRecord(Exception):
    """A record cannot be read; the message names its file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An attachment, its place on the host, and what it may reach.

    Attributes:
        network: The network's name.
        container_id: The container's ID.
        ifname: Name of the interface inside the container.
        link: Name of the host's link from which its packets are routed: the bridge, or the host's end of a ptp link.
        port: Name of the host's end of its link, which is a port of the bridge; `link` itself without a bridge.
        mac: Its hardware address.
        addresses: Its addresses.
        subnets: The networks of these addresses, in which containers reach each other.
        policy: What it may reach.
        mark: The bit of a packet's mark that says that it was accepted; the same for all records of a host.
        identity: Which version of its file was read.
    """

    network: str
    container_id: str
    ifname: str
    link: str
    port: str
    mac: str
    addresses: tuple[IpAddress, ...]
    subnets: tuple[IpNetwork, ...]
    policy: Policy
    mark: int = DEFAULT_MARK
    identity: tuple[int, int] = field(default=(0, 0), compare=False, repr=False)

    @property
    def has_bridge(self) -> bool:
        """Whether its link is a port of a bridge."""
        return self.port != self.link

    @property
    def document(self) -> JsonObject:
        """The record as JSON."""
        return {
            "version": 1,
            "network": self.network,
            "containerId": self.container_id,
            "ifName": self.ifname,
            "link": self.link,
            "port": self.port,
            "mac": self.mac,
            "addresses": [str(one) for one in self.addresses],
            "subnets": [str(one) for one in self.subnets],
            "policy": self.policy.document,
            "mark": self.mark,
        }

    @classmethod
    def from_document(cls, document: JsonObject, identity: tuple[int, int] = (0, 0)) -> "Record":
        """Parse what `document` has made.

        Raises:
            JsonError: It has another form.
            BadEntry: The policy is invalid.
            ValueError: An address is invalid.
        """
        policy = get_object(document, "policy")
        return cls(
            network=get_str(document, "network"),
            container_id=get_str(document, "containerId"),
            ifname=get_str(document, "ifName"),
            link=get_str(document, "link"),
            port=get_str(document, "port"),
            mac=find_str(document, "mac") or "",
            addresses=tuple(map(ip_address, get_strings(document, "addresses"))),
            subnets=tuple(map(ip_network, get_strings(document, "subnets"))),
            policy=_parse_policy(render_json(policy)),
            mark=get_int(document, "mark"),
            identity=identity,
        )

    def __str__(self) -> str:
        return f"{self.ifname} of {self.container_id} on network {self.network}"


@lru_cache(maxsize=256)
def _parse_policy(text: bytes) -> Policy:
    """Parse a policy; the containers of a network share one object."""
    return Policy.from_document(as_object(parse_json(text), "policy"))


class Records:
    """The records of this host.

    Args:
        directory: Where they are.
    """

    def __init__(self, directory: Path = DIRECTORY) -> None:
        self.directory = directory
        self._attachments = directory / "attachments"
        self._sources = directory / "sources"
        self._read: dict[IpAddress, Record] = {}

    def by_source(self, address: IpAddress) -> Record | None:
        """Return the record of the attachment that has an address; None if no attachment has it.

        What has been read stays in memory, and its file is read again only when it has changed: a call takes some
        microseconds.

        Raises:
            BadRecord: The file cannot be read.
        """
        path = str(self._sources / str(address))
        try:
            status = os.stat(path)  # noqa: PTH116  # each query of each container comes here
        except (FileNotFoundError, NotADirectoryError):
            self._read.pop(address, None)
            return None
        known = self._read.get(address)
        if known is None or known.identity != (status.st_ino, status.st_mtime_ns):
            known = self._load(Path(path))
            if known is None:
                self._read.pop(address, None)
            else:
                self._read[address] = known
        return known

    def find(self, container_id: str, ifname: str) -> Record | None:
        """Return the record of an attachment; None if there is none.

        Raises:
            BadRecord: The file cannot be read.
        """
        return self._load(self._path(container_id, ifname))

    def all(self) -> tuple[Record, ...]:
        """Return all records.

        Raises:
            BadRecord: A file cannot be read.
        """
        if not self._attachments.is_dir():
            return ()
        loaded = (self._load(path) for path in sorted(self._attachments.glob(f"*{_SUFFIX}")))
        return tuple(record for record in loaded if record is not None)

    def is_empty(self) -> bool:
        """Return whether there is no record."""
        return next(self._attachments.glob(f"*{_SUFFIX}"), None) is None

    def put(self, record: Record) -> None:
        """Write a record, then the links from its addresses, and return when they are on disk.

        An address that another record had belongs to this one afterwards. Waits for those who hold a former record of
        the attachment (`held`); no one holds it afterwards.
        """
        for directory in (self._attachments, self._sources):
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        path = self._path(record.container_id, record.ifname)
        part = path.with_name(path.name + _PART)
        with part.open("wb") as opened:
            opened.write(render_json(record.document))
            opened.flush()
            os.fsync(opened.fileno())
        with _unheld(path):
            part.rename(path)
        _sync(self._attachments)
        for address in record.addresses:
            source = self._sources / f"{address}{_PART}"
            source.unlink(missing_ok=True)
            source.symlink_to(Path("..", self._attachments.name, path.name))
            source.rename(self._sources / str(address))
        _sync(self._sources)

    def forget_sources(self, record: Record) -> None:
        """Remove the links from its addresses, so that `by_source` does not find it; `held` refuses it from now on.

        Waits for those who hold it. The record itself stays: it says what has to be removed from the kernel.
        """
        path = self._path(record.container_id, record.ifname)
        for address in record.addresses:
            source = self._sources / str(address)
            with suppress(OSError):
                if source.readlink().name == path.name:
                    source.unlink()
        with _unheld(path):
            pass

    def remove(self, record: Record) -> None:
        """Remove a record; it need not exist."""
        self._path(record.container_id, record.ifname).unlink(missing_ok=True)

    @contextmanager
    def held(self, record: Record) -> Iterator[None]:
        """Run the body while the record is in force: DEL waits until it has ended. Never waits itself.

        Raises:
            RecordGone: The attachment has been or is being deleted, or has another policy now.
        """
        path = self._path(record.container_id, record.ifname)
        try:
            opened = path.open("rb")
        except FileNotFoundError as exc:
            raise RecordGone(f"{record} has been deleted") from exc
        with opened:
            try:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError as exc:
                raise RecordGone(f"{record} is being deleted") from exc
            status = os.fstat(opened.fileno())
            if (status.st_ino, status.st_mtime_ns) != record.identity or not status.st_nlink:
                raise RecordGone(f"{record} has been changed")
            if not all(self._is_source(address, path) for address in record.addresses):
                raise RecordGone(f"{record} is being deleted")
            yield

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Run the body while no other process is in such a body: ADD, DEL, GC and repair change files and tables."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # others could hold the locks
        # Read-only, because the daemon, which repairs the tables, is not root.
        opened = os.open(self.directory / "lock", os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX)
            yield
        finally:
            os.close(opened)

    @contextmanager
    def responding(self) -> Iterator[None]:
        """Run the body, which is the whole of the responder, while `has_responder` is true for others.

        Raises:
            BlockingIOError: Another responder runs.
        """
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)  # others could hold the locks
        with (self.directory / "responder").open("ab") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield

    def has_responder(self) -> bool:
        """Return whether the responder runs."""
        try:
            with (self.directory / "responder").open("rb") as opened:
                fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            return False
        return False

    def _path(self, container_id: str, ifname: str) -> Path:
        return self._attachments / f"{container_id}@{ifname}{_SUFFIX}"

    def _is_source(self, address: IpAddress, path: Path) -> bool:
        try:
            return os.readlink(self._sources / str(address)).endswith(f"/{path.name}")  # noqa: PTH115  # quicker
        except OSError:
            return False

    @staticmethod
    def _load(path: Path) -> Record | None:
        try:
            with path.open("rb") as opened:
                status = os.fstat(opened.fileno())
                document = as_object(parse_json(opened.read()), "it")
            return Record.from_document(document, (status.st_ino, status.st_mtime_ns))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, JsonError, BadEntry, ValueError) as exc:
            raise BadRecord(f"the record {path.resolve()} cannot be read: {exc}") from exc


@contextmanager
def _unheld(path: Path) -> Iterator[None]:
    """Run the body while no one holds the record in a file, which need not exist."""
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        yield
        return
    with opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
