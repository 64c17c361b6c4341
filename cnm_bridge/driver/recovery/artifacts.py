# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
r"""Finds what plugins have made on the host for one container: reservations, rules, chains, links.

*Reservations* of host-local are files, `<data directory>/<network>/<address>`. The first line is the container ID, the
second the ifname (plugins `ipam/host-local/backend/disk`). While it holds a lock on the file `lock`, host-local creates
the file and then writes it. If it is killed in between, the file stays empty: DEL does not find it, and the address is
never assigned again (containernetworking/plugins issue 498).

*Rules* for masquerading and port mappings have the container ID in a comment (plugins `pkg/utils`, FormatComment;
`meta/portmap`). A plugin that is killed between two commands leaves an empty chain. As iptables-save prints them:

```
-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \"lan\" id: \"77ad…\"" -j CNI-0a1b…
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"lan\" id: \"77ad…\"" -m multiport … -j CNI-DN-2c3d…
```

*Chains, and the IFB links* of `bandwidth`, have a hash of the network's name and the container ID in their name
(`meta/bandwidth`, getIfbDeviceName; `pkg/utils`, MustFormatHashWithPrefix and MustFormatChainNameWithPrefix). So their
owner is found only by comparing the name with those of known attachments.
"""

import asyncio
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256, sha512
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import structlog

from cni_bridge_spec import JsonObject, find_object, find_str, get_objects
from cnm_bridge.system.process.commands import run_command

IFB_KIND: Final = "ifb"
"""The kernel's name for the kind of the links that `bandwidth` creates."""
_IFB_LENGTH: Final = 15
_CHAIN_LENGTH: Final = 28
_CHAINS: Final = ("CNI-", "CNI-DN-", "CNI-SN-")
"""Prefixes of the chains for masquerading, and of those of `portmap`: DNAT, and before plugins 0.7.0 SNAT."""
_IFB: Final = re.compile(r"bwp[0-9a-f]{12}")
_CHAIN_NAME: Final = re.compile(r"CNI-(?:[0-9a-f]{24}|(?:DN|SN)-[0-9a-f]{21})")
_DATA_DIRECTORY: Final = Path("/var/lib/cni/networks")
"""host-local's data directory, unless its configuration has `dataDir`."""
_LOCK: Final = "lock"
log = structlog.get_logger()

_COMMANDS: Final = ("iptables-save", "ip6tables-save")
_LIMIT_S: Final = 10.0
_CHAIN: Final = re.compile(r":(?P<chain>\S+) ")
_APPENDED: Final = re.compile(r"-A (?P<chain>\S+) ")
_OWNED: Final = re.compile(r'^-A .*--comment ".*?name: \\"(?P<network>[^"\\]+)\\" id: \\"(?P<id>[^"\\]+)\\"')


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginArtifact:
    """An object that a plugin created, and should have removed.

    Attributes:
        network: The CNI network's name, `?` if unknown.
        container_id: The container ID that it was created for; for our own containers, the attachment's ID; `?` if
            unknown.
        what: A description that lets an operator find it: a path such as `/var/lib/cni/networks/lan/10.1.2.3`, or the
            command that would create the rule, `iptables -t nat -A POSTROUTING …`.
        address: The reserved address; None if it is not a reservation.
    """

    network: str
    container_id: str
    what: str
    address: str | None = None

    @property
    def id(self) -> str:
        """An ID by which an operator names it: twelve digits, the same in every run."""
        return sha256(f"{self.network} {self.container_id} {self.what}".encode()).hexdigest()[:12]


def ifb_name(network: str, container_id: str) -> str:
    """Return the name of the IFB link that `bandwidth` creates for a container on a CNI network."""
    return _ifb(_hash(network, container_id))


def chain_names(network: str, container_id: str) -> frozenset[str]:
    """Return the names of the iptables chains that plugins may create for a container on a CNI network."""
    return frozenset(_chains(_hash(network, container_id)))


def hashed_names(network: str, container_id: str) -> frozenset[str]:
    """Return the names of both the link and the chains."""
    digest = _hash(network, container_id)
    return frozenset((_ifb(digest), *_chains(digest)))


def is_ifb_name(name: str) -> bool:
    """Return whether a link's name has the form of those that `bandwidth` creates."""
    return _IFB.fullmatch(name) is not None


def is_chain_name(name: str) -> bool:
    """Return whether a chain's name has the form of those that belong to one container."""
    return _CHAIN_NAME.fullmatch(name) is not None


def names_for_cache_files(files: Iterable[str]) -> frozenset[str]:
    """Return the names of the links and chains that plugins may have created for the attachments in libcni's cache.

    Args:
        files: Names of cache files, `<network>-<container ID>-<ifname>`. Each part may itself contain a `-`, so all
            ways to divide a name are tried.
    """
    found: set[str] = set()
    for file in files:
        hyphens = [index for index, letter in enumerate(file) if letter == "-"]
        for number, first in enumerate(hyphens):
            for second in hyphens[number + 1 :]:
                found |= hashed_names(file[:first], file[first + 1 : second])
    return frozenset(found)


def _ifb(digest: str) -> str:
    return f"bwp{digest}"[:_IFB_LENGTH]


def _chains(digest: str) -> Iterator[str]:
    return (f"{prefix}{digest}"[:_CHAIN_LENGTH] for prefix in _CHAINS)


def _hash(network: str, container_id: str) -> str:
    return sha512((network + container_id).encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservations:
    """The reservations of one or more networks.

    Attributes:
        owned: Reservations that contain a container ID.
        unwritten: Empty files: host-local is just writing them, or was killed.
    """

    owned: tuple[PluginArtifact, ...] = ()
    unwritten: tuple[Path, ...] = ()


def data_directories(configurations: Iterable[JsonObject]) -> frozenset[Path]:
    """Return host-local's data directories: the default, and those that network configuration lists choose."""
    plugins = (plugin for document in configurations for plugin in get_objects(document, "plugins"))
    found = (find_str(find_object(plugin, "ipam") or {}, "dataDir") for plugin in plugins)
    return frozenset({_DATA_DIRECTORY, *(Path(directory) for directory in found if directory)})


def find_reservations(directory: Path, network: str) -> Reservations:
    """Return the reservations of a network. Unreadable files are ignored.

    Args:
        directory: host-local's data directory.
        network: The CNI network's name.
    """
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


def remove_unwritten(file: Path) -> bool:
    """Remove the empty reservation of a killed host-local; return whether it was removed.

    While this function holds the lock, no host-local is between creating and writing a file, so an empty file belongs
    to no container. If a host-local holds the lock, or the file is no longer empty, it stays.

    Raises:
        OSError: The lock or the file cannot be opened or removed.
    """
    with suppress(BlockingIOError, FileNotFoundError), _lock_of(file):  # the lock is held, or the file was removed
        if file.stat().st_size == 0:
            file.unlink()
            return True
    return False


def remove_reservation(file: Path, container_id: str) -> bool:
    """Remove a reservation of a container while no host-local runs; return whether it was there.

    Raises:
        OSError: host-local holds its lock, or the file cannot be removed.
    """
    with suppress(FileNotFoundError), _lock_of(file):
        if file.read_text("utf-8").split(maxsplit=1)[:1] == [container_id]:
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
class EmptyChain:
    """A chain without rules that a plugin created for a container.

    Attributes:
        name: The chain's name.
        what: A description for the operator: the command that would create it.
    """

    name: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRules:
    """The rules and chains of plugins that iptables-save printed.

    Attributes:
        artifacts: The rules whose comment contains a container ID.
        empty_chains: The chains without rules.
    """

    artifacts: tuple[PluginArtifact, ...] = ()
    empty_chains: tuple[EmptyChain, ...] = ()


async def find_rules(commands: Sequence[str] = _COMMANDS, *, limit_s: float = _LIMIT_S) -> SavedRules:
    """Return the plugins' rules and empty chains in the tables `nat`. A table that cannot be read counts as empty."""
    saved = [await read_rules(command, "-t", "nat", limit_s=limit_s) for command in commands]

    def parse() -> SavedRules:
        tables = [command.rpartition("/")[2].removesuffix("-save") for command in commands]
        parsed = [parse_rules(text, table) for table, text in zip(tables, saved, strict=True)]
        return SavedRules(
            artifacts=tuple(artifact for rules in parsed for artifact in rules.artifacts),
            empty_chains=tuple(chain for rules in parsed for chain in rules.empty_chains),
        )

    return await asyncio.to_thread(parse)


def parse_rules(text: str, command: str = "iptables") -> SavedRules:
    """Return the plugins' rules and empty chains in the output of iptables-save.

    Args:
        text: The output.
        command: The command for descriptions, `iptables` or `ip6tables`.
    """
    lines = text.splitlines()
    owned = ((line, _OWNED.match(line)) for line in lines)
    chains = [match["chain"] for line in lines if (match := _CHAIN.match(line))]
    filled = {match["chain"] for line in lines if (match := _APPENDED.match(line))}
    return SavedRules(
        artifacts=tuple(
            PluginArtifact(network=match["network"], container_id=match["id"], what=f"{command} -t nat {line}")
            for line, match in owned
            if match is not None
        ),
        empty_chains=tuple(
            EmptyChain(name=chain, what=f"{command} -t nat -N {chain}")
            for chain in chains
            if is_chain_name(chain) and chain not in filled
        ),
    )


async def read_rules(command: str, *arguments: str, limit_s: float = _LIMIT_S) -> str:
    """Return the output of iptables-save or ip6tables-save; empty if it fails."""
    try:
        done = await run_command(command, *arguments, limit_s=limit_s)
    except TimeoutError:
        log.warning("rules.unread", command=command, error=f"no answer within {limit_s:g} s")
    except OSError as exc:  # a host without iptables has no such rules
        log.debug("rules.unread", command=command, error=str(exc))
    else:
        if done.succeeded:
            return done.output
        log.debug("rules.unread", command=command, error=done.error)
    return ""
