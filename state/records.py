# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The records of networks and endpoints.

Records are plain values. Foreign documents (a network configuration list, a CNI result) are stored unchanged; `state`
knows neither CNI nor netlink and does not interpret them. Records may share a document, so documents never change.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Interface, IPv6Network
from pathlib import Path
from typing import NewType

from cni_bridge_spec import JsonObject, find_str
from cni_bridge_state.errors import NotJoined
from cni_bridge_state.phases import Phase

NetworkId = NewType("NetworkId", str)
EndpointId = NewType("EndpointId", str)
AttachmentId = NewType("AttachmentId", str)
"""CNI's container ID of an attachment; its names derive from it. Hexadecimal, 12 to 64 digits."""
MemoryId = NewType("MemoryId", str)


class AttachMode(StrEnum):
    """How the link gets into the sandbox."""

    MOVE = "move"
    """Plugins run in a staging namespace; libnetwork moves the link from there into the sandbox."""
    HYBRID = "hybrid"
    """The IPAM plugin runs at CreateEndpoint, the other plugins run in the sandbox at Join."""
    DIRECT = "direct"
    """All plugins run in the sandbox at Join; Docker does not know the addresses."""

    @property
    def shown(self) -> str:
        """What users see: `move` or `sandbox`; the list decides between the mechanisms of the latter."""
        return "sandbox" if self.in_sandbox else "move"

    @property
    def in_sandbox(self) -> bool:
        """Whether plugins run in the sandbox at Join, and make the link there."""
        return self is not AttachMode.MOVE

    @property
    def has_reservation(self) -> bool:
        """Whether the IPAM plugin runs at CreateEndpoint, before the plugins that make the link."""
        return self is AttachMode.HYBRID

    @property
    def docker_knows_addresses(self) -> bool:
        """Whether the reply to CreateEndpoint has the addresses of the link."""
        return self is not AttachMode.DIRECT

    @property
    def falls_back_to_move(self) -> bool:
        """Whether the link is moved if it cannot be made in the sandbox."""
        return self is AttachMode.HYBRID


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRecord:
    """An address pool of Docker's IPAM.

    Attributes:
        gateway: The address that it reserved for the gateway, None if it reserved none.
        is_own: Whether this driver is Docker's IPAM driver for it: then Docker's addresses are reserved already.
    """

    subnet: IPv4Network | IPv6Network
    gateway: IPv4Address | IPv6Address | None
    is_own: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRecord:
    """A process; its start, in clock ticks since boot (proc(5)), distinguishes it from later ones with the same ID."""

    pid: int
    started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRecord:
    """A Docker network and the network configuration list it is bound to.

    Attributes:
        configuration: The list's name from `-o cni.network`, None if the list has the network's name.
        name: The Docker network's name, None until it is known from the engine.
        options: All options that the user gave with `-o`.
        pools: The pools of Docker's IPAM driver; empty if addresses are left to the plugins.
        engine: The ID of the engine that lists it, None until one has.
        caller: The process that requested it: an engine. None if that is unknown.
    """

    id: NetworkId
    configuration: str | None
    name: str | None
    internal: bool
    options: Mapping[str, str]
    pools: tuple[PoolRecord, ...] = ()
    engine: str | None = None
    caller: ProcessRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedInterface:
    """The values that Docker chose before CreateEndpoint; None leaves the choice to the driver."""

    address: IPv4Interface | None = None
    address_ipv6: IPv6Interface | None = None
    mac: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortRequest:
    """A port to publish, as given with `-p` or `-P`.

    Attributes:
        protocol: The IP protocol number: 6 (tcp), 17 (udp), 132 (sctp).
        host_ip: The address of the host, None for all addresses.
        host_port: The first port of the range on the host, 0 for any port.
        host_port_end: The last port of the range.
    """

    protocol: int
    container_port: int
    host_ip: IPv4Address | IPv6Address | None
    host_port: int
    host_port_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityRequest:
    """The request that plugins receive the identity of the container, which is known from Join on.

    Attributes:
        labels: Shell patterns of the labels that they receive.
        is_required: Whether a container whose identity is not known is refused.
    """

    labels: tuple[str, ...] = ()
    is_required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservationInput:
    """What the IPAM plugin received at CreateEndpoint, if the other plugins receive more, such as the identity."""

    plugin: JsonObject
    args: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyRecord:
    """The key of a container (`cni.sticky`), and what its plugins were first asked for because of it.

    Attributes:
        addresses: The addresses that the last container with the key had, without prefixes; empty for none.
        mac: The MAC that the plugins are asked for; None for none.
    """

    key: str
    addresses: tuple[str, ...] = ()
    mac: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRecord:
    """What the last container with a key had. Nothing is reserved.

    Attributes:
        id: The name of the network configuration list and the key, as `<configuration>/<key>`.
        addresses: Its addresses, without prefixes.
        mac: Its MAC, None if it is unknown.
        used_at: When the container's endpoint was created, in seconds since 1970; 0 if that is unknown.
    """

    id: MemoryId
    addresses: tuple[str, ...]
    mac: str | None
    used_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachmentRecord:
    """Everything a CNI DEL needs, fixed before the ADD and never read from the configuration directory again.

    Attributes:
        id: What CNI knows it by, as container ID: the endpoint's ID, or one derived from its DHCP client identifier.
        ifname: The link's name in the namespace in which the plugins run.
        netns: Path of that namespace: the staging namespace, or the pin of the sandbox.
        configuration: The network configuration list, whole.
        cni_version: The version that its plugins are run with.
        reservation: The result of the IPAM plugin, if that ran at CreateEndpoint, before all other plugins; else None.
        reservation_input: What the IPAM plugin received then; None if that follows from `configuration` and `args`.
        mode_reason: Why the link gets there in this way, in words that follow "because"; empty if that is unknown.
    """

    id: AttachmentId
    ifname: str
    netns: str
    configuration: JsonObject
    cni_version: str
    args: tuple[tuple[str, str], ...]
    capability_args: JsonObject
    mode: AttachMode = AttachMode.MOVE
    reservation: JsonObject | None = None
    reservation_input: ReservationInput | None = None
    identity: IdentityRequest | None = None
    mode_reason: str = ""
    sticky: StickyRecord | None = None

    @property
    def has_reservation(self) -> bool:
        """Whether the IPAM plugin is executed, or was executed, at CreateEndpoint."""
        return self.mode.has_reservation or self.reservation is not None

    @property
    def network(self) -> str:
        """The name of its CNI network, empty if the list has none."""
        return find_str(self.configuration, "name") or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRecord:
    """An endpoint: one attachment of one container to one network.

    Attributes:
        boot_id: The kernel's boot ID when the plugins ran.
        internal: Whether the network was internal when the endpoint was created.
        added_plugins: How many plugins have completed ADD. In mode *hybrid* the IPAM plugin counts as the first one.
        deleted: Indexes of the plugins, counted like that, for which no DEL is pending: it has completed, or their ADD
            has not begun.
        result: The CNI result of the last plugin that completed ADD, None if there is none.
        snapshot: What the plugins left in the namespace where they ran (`state/snapshot`); in modes *hybrid* and
            *direct*, before they run, the link that they will make. If the result has no address, it is what the
            teardown found: the link and its addresses only.
        sandbox_key: Path of the sandbox's namespace, None if it was never joined.
        addresses: All addresses that plugins may have created rules for, without prefixes; the record is indexed by
            them.
        caller: The process that requested the endpoint and its join: the engine. None if that is unknown, or if they
            were two different processes.
        first_process: The first process of the container, as far as it was found at Join or after ports were published.
            When it has ended, the container has.
        lease_holder: The CNI DHCP daemon that keeps the endpoint's lease; None if there is no lease, or if that is not
            known.
        created_at: When it was created, in seconds since 1970; None if that is unknown.
        configuration_digest: A digest of its list as it was on disk, before values of the endpoint were added; None if
            it is unknown.
        requested_ports: The ports that Docker has requested, until they are published; else empty.
    """

    id: EndpointId
    network_id: NetworkId
    phase: Phase
    boot_id: str
    internal: bool
    requested: RequestedInterface
    attachment: AttachmentRecord
    added_plugins: int = 0
    deleted: tuple[int, ...] = ()
    result: JsonObject | None = None
    snapshot: JsonObject | None = None
    addresses: tuple[str, ...] = ()
    sandbox_key: str | None = None
    ifname_prefix: str = "eth"
    caller: ProcessRecord | None = None
    first_process: ProcessRecord | None = None
    lease_holder: ProcessRecord | None = None
    created_at: int | None = None
    configuration_digest: str | None = None
    requested_ports: tuple[PortRequest, ...] = ()

    @property
    def mac(self) -> str | None:
        """The MAC of its link, in lower case: the one that Docker chose, or that of the snapshot. None if unknown.

        Before there is a snapshot, it is the one that the plugins are asked for because of a key.

        The store is indexed by it: it must be found, or be None, in each record that can be stored.
        """
        if self.requested.mac:
            return self.requested.mac.lower()
        if self.snapshot is None:
            return None if self.attachment.sticky is None else self.attachment.sticky.mac
        link = self.snapshot.get("link")
        mac = link.get("mac") if isinstance(link, dict) else None
        return mac if isinstance(mac, str) else None

    @property
    def missed_addresses(self) -> tuple[str, ...]:
        """The addresses that it was to have because of its key, and has not; empty before it has any."""
        sticky = self.attachment.sticky
        if sticky is None or not self.phase.is_attached or not self.addresses:
            return ()
        return tuple(address for address in sticky.addresses if address not in self.addresses)

    @property
    def sandbox(self) -> Path:
        """The path of the sandbox that the endpoint is joined to, or was."""
        if not self.sandbox_key:
            raise NotJoined(self.id)
        return Path(self.sandbox_key)
