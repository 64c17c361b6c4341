# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finds what plugins have made on the host: reservations, rules, and the names of chains and links.

*Reservations* of host-local are files, `<data directory>/<network>/<address>`. The first line is the container ID, the
second the ifname (plugins `ipam/host-local/backend/disk`). While it holds a lock on the file `lock`, host-local creates
the file and then writes it. If it is killed in between, the file stays empty: DEL does not find it, and the address is
never assigned again (containernetworking/plugins issue 498).

*Rules* have the container ID in a comment, see `core/saved_rules.py`.

*Chains, and the IFB links* of `bandwidth`, have a hash of the network's name and the container ID in their name
(`meta/bandwidth`, getIfbDeviceName; `pkg/utils`, MustFormatHashWithPrefix and MustFormatChainNameWithPrefix).

Rules belong to an endpoint if they have its container ID or its hash, or one of its addresses in a chain of `firewall`.
Rules of nftables are not examined.
"""

import asyncio
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha512
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_spec import JsonObject, find_object, find_str, get_objects
from cni_bridge_state import EndpointRecord
from cni_invoker import NetworkConfigurationList
from cnm_bridge.core.lists.address_ranges import reservation_directories
from cnm_bridge.core.saved_rules import SavedRule, parse_saved_rules
from cnm_bridge.system.commands import run_command

_IFB_LENGTH: Final = 15
_CHAIN_LENGTH: Final = 28
_CHAINS: Final = ("CNI-", "CNI-DN-", "CNI-SN-")
"""Prefixes of the chains for masquerading, and of those of `portmap`: DNAT, and before plugins 0.7.0 SNAT."""
_DATA_DIRECTORY: Final = Path("/var/lib/cni/networks")
"""host-local's data directory, unless its configuration has `dataDir`."""
_LOCK: Final = "lock"
log = structlog.get_logger()

_COMMANDS: Final = ("iptables-save", "ip6tables-save")
_LIMIT_S: Final = 10.0

_BY_ADDRESS: Final = frozenset({"CNI-FORWARD", "CNI-ADMIN", "CNI-ISOLATION"})
"""The chains of `firewall`, whose rules have addresses and no container ID."""
_ID: Final = re.compile(r"[0-9a-f]{16,}")
"""A container ID of ours in a rule's comment."""
_HOST: Final = re.compile(r" (\S+)/(?:32|128)(?= |$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginArtifact:
    """An object that a plugin created, and should have removed."""

    network: str
    container_id: str
    what: str
    address: str | None = None


def ifb_name(network: str, container_id: str) -> str:
    """Return the name of the IFB link that `bandwidth` creates for a container on a CNI network."""
    return f"bwp{_hash(network, container_id)}"[:_IFB_LENGTH]


def chain_names(network: str, container_id: str) -> frozenset[str]:
    """Return the names of the iptables chains that plugins may create for a container on a CNI network."""
    return frozenset(f"{prefix}{_hash(network, container_id)}"[:_CHAIN_LENGTH] for prefix in _CHAINS)


def _hash(network: str, container_id: str) -> str:
    return sha512((network + container_id).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """The reservations of one or more networks."""

    owned: tuple[PluginArtifact, ...] = ()
    unwritten: tuple[Path, ...] = ()
    """Empty files: host-local is just writing them, or was killed."""


def data_directories(configurations: Iterable[JsonObject]) -> frozenset[Path]:
    """Return host-local's data directories: the default, and those that network configuration lists choose."""
    plugins = (plugin for document in configurations for plugin in get_objects(document, "plugins"))
    found = (find_str(find_object(plugin, "ipam") or {}, "dataDir") for plugin in plugins)
    return frozenset({_DATA_DIRECTORY, *(Path(directory) for directory in found if directory)})


def find_reservations(directory: Path, network: str) -> Reservations:
    """Return the reservations of a network. Unreadable files are ignored."""
    try:
        files = sorted((directory / network).iterdir())
    except OSError:  # host-local has never reserved an address there
        return Reservations()
    owned, unwritten = [], []
    for file in files:
        try:
            address = str(ip_address(file.name.replace("_", ":")))  # host-local may write _ for :
            words = file.read_text("utf-8").split(maxsplit=1)
        except (ValueError, OSError):  # `lock`, `last_reserved_ip.0`, or a file removed meanwhile
            continue
        if words:
            owned.append(PluginArtifact(network=network, container_id=words[0], what=str(file), address=address))
        else:
            unwritten.append(file)
    return Reservations(owned=tuple(owned), unwritten=tuple(unwritten))


def list_reservations(network: NetworkConfigurationList) -> tuple[PluginArtifact, ...]:
    """Return host-local's reservations of a list, in all directories that it chooses.

    Raises:
        JsonError: The plugins cannot parse the list.
    """
    directories = map(Path, reservation_directories(network))
    return tuple(one for directory in directories for one in find_reservations(directory, network.name).owned)


def remove_unwritten(file: Path) -> bool:
    """Remove the empty reservation of a killed host-local; return whether it was removed.

    While this function holds the lock, no host-local is between creating and writing a file, so an empty file belongs
    to no container. If a host-local holds the lock, or the file is no longer empty, it stays. Raises `OSError` if the
    lock or the file cannot be opened or removed.
    """
    with suppress(BlockingIOError, FileNotFoundError), _lock_of(file):  # the lock is held, or the file was removed
        if file.stat().st_size == 0:
            file.unlink()
            return True
    return False


@contextmanager
def _lock_of(file: Path) -> Iterator[None]:
    lock = os.open(file.parent / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRule:
    """A rule of the host."""

    command: str
    saved: SavedRule

    @property
    def what(self) -> str:
        """The command that would create it, `iptables -t nat -A POSTROUTING …`."""
        return f"{self.command} -t {self.saved.table} {self.saved.text}"


async def read_rules(commands: Sequence[str] = _COMMANDS, *, limit_s: float = _LIMIT_S) -> tuple[HostRule, ...]:
    """Return the rules of all tables. What cannot be read counts as empty."""
    saved = [(command.rpartition("/")[2].removesuffix("-save"), await _read(command, limit_s)) for command in commands]

    def parse() -> tuple[HostRule, ...]:
        return tuple(
            HostRule(command=command, saved=rule)
            for command, text in saved
            for rule in parse_saved_rules(text.splitlines()).rules
        )

    return await asyncio.to_thread(parse)  # takes a while for thousands of containers


def owned_rules(rules: Iterable[HostRule]) -> Iterator[PluginArtifact]:
    """Yield the rules whose comment has a container ID."""
    for rule in rules:
        if rule.saved.owner is not None:
            network, container_id = rule.saved.owner
            yield PluginArtifact(network=network, container_id=container_id, what=rule.what)


async def _read(command: str, limit_s: float) -> str:
    """Return the output of iptables-save or ip6tables-save; empty if it fails."""
    try:
        saved = await run_command(command, limit_s=limit_s)
    except TimeoutError:
        log.warning("rules.unread", command=command, error=f"no answer within {limit_s:g} s")
    except OSError as exc:  # a host without iptables has no such rules
        log.debug("rules.unread", command=command, error=str(exc))
    else:
        if saved.succeeded:
            return saved.output
        log.debug("rules.unread", command=command, error=saved.error)
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedArtifacts:
    """What an endpoint's plugins have made on the host, each as a text that lets an operator find it."""

    reservations: tuple[str, ...]
    """Paths of host-local's files."""
    rules: tuple[str, ...]
    """The commands that would create the rules and chains."""
    links: tuple[str, ...]
    """Names of IFB links."""


async def find_owned(record: EndpointRecord) -> OwnedArtifacts:
    """Return what the plugins of an endpoint have made on the host; what cannot be read counts as not existing."""
    return await asyncio.to_thread(select_owned, record, await read_rules())


def select_owned(record: EndpointRecord, rules: Iterable[HostRule]) -> OwnedArtifacts:
    """Return those of the host's rules that are an endpoint's, with its reservations and links."""
    network, container_id = record.attachment.network, record.attachment.id
    keys = {container_id, *chain_names(network, container_id), *record.addresses}
    link = ifb_name(network, container_id)
    # most rules are of other endpoints, and finding their keys takes longer than this
    of_it = (rule for rule in rules if any(key in rule.saved.text for key in keys))
    return OwnedArtifacts(
        reservations=tuple(
            reservation.what
            for directory in sorted(data_directories([record.attachment.configuration]))
            for reservation in find_reservations(directory, network).owned
            if reservation.container_id == container_id
        ),
        rules=tuple(dict.fromkeys(rule.what for rule in of_it if not keys.isdisjoint(_keys(rule.saved)))),
        links=(link,) if Path("/sys/class/net", link).exists() else (),
    )


def _keys(rule: SavedRule) -> frozenset[str]:
    """Return what a rule is found by: its chain, the container IDs in it, and addresses in chains of `firewall`."""
    addresses = _HOST.findall(rule.text) if rule.chain in _BY_ADDRESS else ()
    return frozenset((rule.chain, *_ID.findall(rule.text), *addresses))
