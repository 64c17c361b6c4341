# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Lists of the CNI project's own plugins, containers to attach, and what plugins could leave on the host."""

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from pyroute2.nftables.main import NFTables

from cni_bridge_spec import JsonObject, JsonValue
from cni_invoker import Attachment, Execution, Limits, NetworkConfigurationList, Result, Verb
from cnm_bridge.driver.recovery.artifacts import ifb_name
from tests.kernel.namespace import Namespace
from tests.lab import LabState
from tests.lab.debian import FetchError
from tests.lab.fetched_plugins import find_fetched_plugins
from tests.lab.state import parse_rules

LIMITS: Final = Limits(add_s=30.0, delete_s=30.0)
HOST: Final = Namespace(Path("/proc/self/ns/net"))
OFFERED: Final = ["0.4.0", "1.0.0", "1.1.0"]
MACHINES: Final = Path("/usr/lib/cni")
IPTABLES: Final = frozenset({"nat", "filter", "mangle", "raw", "security"})
"""The tables of nftables that iptables keeps its own in."""
ROUTES: Final[JsonValue] = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
HOST_LOCAL: Final[JsonObject] = {
    "type": "host-local",
    "ranges": [[{"subnet": "10.99.0.0/24"}], [{"subnet": "fd99::/64"}]],
    "routes": ROUTES,
}
STATIC: Final[JsonObject] = {
    "type": "static",
    "addresses": [
        {"address": "10.99.0.9/24", "gateway": "10.99.0.1"},
        {"address": "fd99::9/64", "gateway": "fd99::1"},
    ],
    "routes": ROUTES,
}
BRIDGE: Final[JsonObject] = {"type": "bridge", "bridge": "cni-test0", "isGateway": True, "ipMasq": True}
PORTMAP: Final[JsonObject] = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
BANDWIDTH: Final[JsonObject] = {"type": "bandwidth", "capabilities": {"bandwidth": True}}
FIREWALL: Final[JsonObject] = {"type": "firewall", "backend": "iptables"}
TUNING: Final[JsonObject] = {"type": "tuning", "mtu": 1400, "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"}}
CAPABILITY_ARGS: Final[JsonObject] = {
    "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
    "bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 8_000_000, "egressBurst": 800_000},
}
LISTS: Final[dict[str, list[JsonObject]]] = {
    "bridge with all": [{**BRIDGE, "ipam": HOST_LOCAL}, TUNING, BANDWIDTH, PORTMAP, FIREWALL],
    "bridge with all but portmap": [{**BRIDGE, "ipam": HOST_LOCAL}, TUNING, BANDWIDTH, FIREWALL],
    "bridge, static": [{**BRIDGE, "ipam": STATIC}, PORTMAP],
    "bridge, sbr": [{**BRIDGE, "ipam": HOST_LOCAL}, {"type": "sbr"}],
    "ptp": [{"type": "ptp", "ipMasq": True, "ipam": HOST_LOCAL}, PORTMAP, FIREWALL],
    "ptp, bandwidth": [{"type": "ptp", "ipam": STATIC}, BANDWIDTH],
    "macvlan": [{"type": "macvlan", "master": "uplink", "ipam": HOST_LOCAL}, TUNING],
    "macvlan, static": [{"type": "macvlan", "master": "uplink", "ipam": STATIC}],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """The plugins of one package.

    Attributes:
        directory: Where they are.
        version: The CNI version that is used with them.
    """

    directory: Path
    version: str

    def can_check(self, network: NetworkConfigurationList) -> bool:
        """Return whether CHECK of a list can succeed: portmap 1.1.1 looks for IPv6 rules that it has not made."""
        return self.directory != MACHINES or all(plugin.type != "portmap" for plugin in network.plugins)


class Executed:
    """Records which plugins are executed."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Verb]] = []

    def on_execution(self, execution: Execution) -> None:
        """Record one execution."""
        assert execution.duration_s > 0
        self.seen.append((execution.plugin, execution.verb))

    def plugins(self, verb: Verb) -> list[str]:
        """Return the plugins that were executed for a verb, in order."""
        return [plugin for plugin, seen in self.seen if seen == verb]


def find_plugins(whose: str) -> Plugins:
    """Return the plugins of the `machine`, or those that were `fetched`; skip the test if there are none."""
    if whose == "machine":
        if not (MACHINES / "bridge").exists():
            pytest.skip(f"no CNI plugins in {MACHINES}")
        return Plugins(directory=MACHINES, version="1.0.0")
    try:
        fetched = find_fetched_plugins()
    except FetchError as exc:
        pytest.skip(f"the fetched plugins are unusable: {exc}")
    if fetched is None:
        pytest.skip("no newer plugins are fetched; run `python -m tests.lab.fetch plugins`")
    return Plugins(directory=fetched.directory, version=fetched.cni_versions[-1])


@contextmanager
def uplink() -> Iterator[None]:
    """Make a parent link for macvlan; remove, after the test, what plugins leave behind by design."""
    HOST.ip("link add uplink type veth peer name uplink-peer", "link set uplink up", "link set uplink-peer up")
    yield
    HOST.ip("link del uplink")
    for link in HOST.links():
        if link.startswith(("cni-test", "bwp")):
            HOST.ip(f"link del {link}")
    for program in ("iptables", "ip6tables"):
        for table in ("nat", "filter"):
            HOST.run(f"{program} -t {table} -F")
            HOST.run(f"{program} -t {table} -X")


@contextmanager
def container(name: str) -> Iterator[Attachment]:
    """Make the namespace of a container; gives the attachment for it."""
    HOST.ip(f"netns add {name}")
    try:
        inside = Namespace(Path("/run/netns") / name)
        # Duplicate address detection would take most of the time of these tests.
        inside.run("busybox sysctl -qw net.ipv6.conf.default.accept_dad=0")
        inside.ip("link set lo up")
        yield Attachment(container_id=name, ifname="eth0", netns=str(inside.path), capability_args=CAPABILITY_ARGS)
    finally:
        HOST.ip(f"netns del {name}")


def make_list(*plugins: JsonObject, data_dir: Path) -> NetworkConfigurationList:
    """Make a list whose plugins keep their files in `data_dir`."""
    adapted: list[JsonValue] = [_with_data_dir(plugin, data_dir) for plugin in plugins]
    return NetworkConfigurationList.from_document({"name": "test", "cniVersions": OFFERED, "plugins": adapted})


def _with_data_dir(plugin: JsonObject, data_dir: Path) -> JsonObject:
    ipam = plugin.get("ipam")
    if isinstance(ipam, dict) and ipam["type"] == "host-local":
        return {**plugin, "ipam": {**ipam, "dataDir": str(data_dir)}}
    if plugin["type"] == "tuning":
        return {**plugin, "dataDir": str(data_dir / "tuning")}
    return plugin


def observe(data_dir: Path) -> LabState:
    """Read everything that plugins could leave behind on the host."""
    files = [str(path) for path in data_dir.rglob("*") if path.is_file()]
    kept = re.compile(r".*/(lock|last_reserved_ip\.\d)")
    return LabState(
        namespaces=(),
        links=tuple(sorted(_links())),
        rules=tuple(sorted((*_rules(), *_tables()))),
        reservations=tuple(sorted(file for file in files if not kept.fullmatch(file))),
        files=tuple(sorted(str(path) for path in Path("/run/cni").rglob("*") if path.is_file())),
        plugins=(),
        containers=(),
        networks=(),
    )


def _links() -> Iterator[str]:
    for line in HOST.run("ip -oneline link").decode().splitlines():
        name = line.split(": ")[1].partition("@")[0]
        yield f"{name} (bridge)" if name == "cni-test0" else name


def _rules() -> tuple[str, ...]:
    saved = (HOST.run(command).decode() for command in ("iptables-save", "ip6tables-save"))
    return tuple(parse_rules("# ip6\n".join(saved)))


def _tables() -> list[str]:
    """Return the tables of nftables that are not those of iptables; `iptables-save` does not show them."""

    def find() -> list[str]:
        with NFTables() as nftables:
            found = [(table["nfgen_family"], table.get_attr("NFTA_TABLE_NAME")) for table in nftables.get_tables()]
        return [f"nftables {family} {name}" for family, name in found if name not in IPTABLES]

    with ThreadPoolExecutor(max_workers=1) as thread:  # it has an event loop of its own, and here there is one already
        return thread.submit(find).result()


def inside(attachment: Attachment) -> Namespace:
    """Return a container's namespace."""
    return Namespace(Path(attachment.netns))


def assert_in_effect(network: NetworkConfigurationList, attachment: Attachment, result: Result) -> None:
    """Assert that each plugin of a list has taken effect."""
    given = [str(address) for address in result.addresses_of("eth0")]
    assert inside(attachment).addresses("eth0") == given
    assert len(given) == 2
    types = {plugin.type for plugin in network.plugins}
    rules = _rules()
    if "portmap" in types:
        assert any("--dport 8080" in rule and "CNI-DN-" in rule for rule in rules)
    if "firewall" in types:
        for address in result.addresses_of("eth0"):
            assert any(
                rule.startswith("ip") and f" -d {address.ip}/" in rule and "CNI-FORWARD" in rule for rule in rules
            )
    if network.plugins[0].document.get("ipMasq"):
        assert any(" nat -A POSTROUTING -s 10.99.0." in rule for rule in rules)
    if "bandwidth" in types:
        assert ifb_name(network.name, attachment.container_id) in HOST.links()
    if "tuning" in types:
        assert inside(attachment).setting("net/ipv4/conf/eth0/arp_filter") == "1"
        assert inside(attachment).link("eth0")["mtu"] == 1400
    if "sbr" in types:
        assert b"from 10.99.0." in inside(attachment).run("ip rule")
