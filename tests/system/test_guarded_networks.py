# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`docker run` on a network whose list ends with `egress`: from the first instruction on, only what is allowed."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_spec import JsonObject, as_object, get_objects, get_strings
from cni_egress.records import DIRECTORY, Records
from cnm_bridge.core.lists.guard import RESPONDER
from tests.lab import ADMIN_SOCKET, Container, Engine, Lab, Process, wait_until
from tests.lab.programs import SEARCH_PATH
from tests.system.calls import ask_status
from tests.system.plugin_lists import defaults
from tests.system.scene import LISTS, Scene, Subnet, bridge, wait_logged

OPEN: Final = ("198.51.100.17", "2001:db8:2::17")
CLOSED: Final = ("198.51.100.9", "2001:db8:1::9")
ALLOW: Final = ("198.51.100.16/28", "[2001:db8:2::/64]:443")
FOR_BEACONS: Final = ("-o", "cni.egress.net-admin=allow")
"""The option of a network whose containers have all capabilities."""
NAMED: Final = "11.0.0.17"
"""The address of each name, which is public: others are taken out of answers."""
UFW: Final = "route allow from {subnet}"
FIREWALLD: Final = ("--permanent --zone=trusted --add-source={subnet}", "--reload")
"""What their users type, after `ufw` and `firewall-cmd`; docs/firewalls.md has it."""
OPEN_BY_NAME: Final = ("-o", f"cni.egress.allow={OPEN[0]} {ALLOW[1]} allowed.example:*")
pytestmark = pytest.mark.timeout(400)  # each container needs a process of Python more than once
_BEACON: Final = Path(__file__).parents[1] / "egress" / "beacon.c"
_OUTSIDE: Final = f"""
ip netns add outside
ip link add door0 up type veth peer name door netns outside
ip address add 203.0.113.2/24 dev door0
ip address add 2001:db8:f::2/64 dev door0 nodad
ip route add default via 203.0.113.1
ip -6 route add default via 2001:db8:f::1
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip netns exec outside sh -euc '
    ip link set lo up
    ip link set door up
    ip address add 203.0.113.1/24 dev door
    ip address add 2001:db8:f::1/64 dev door nodad
    ip route add 10.80.0.0/16 via 203.0.113.2
    ip -6 route add fd80::/16 via 2001:db8:f::2
    for address in {OPEN[0]} {CLOSED[0]} {NAMED}; do ip address add $address/32 dev lo; done
    for address in {OPEN[1]} {CLOSED[1]}; do ip address add $address/128 dev lo nodad; done
    nft -f - <<END
table inet seen {{
  counter seen {{ }}
  chain in {{
    type filter hook prerouting priority -400;
    iifname != "door" return
    icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld2-listener-report }} return
    counter name seen
  }}
}}
END'
iptables -P FORWARD ACCEPT
ip6tables -P FORWARD ACCEPT
"""
"""A namespace behind an uplink, which counts all that arrives; and nothing but the plugin refuses anything."""
_UPSTREAM: Final = f"""
import signal
from tests.egress.upstream import FakeUpstream, serving
upstream = FakeUpstream("203.0.113.1", 53)
for name in ("allowed.example", "closed.example"):
    upstream.add(name, "A", "{NAMED}")
with serving(upstream):
    signal.pause()
"""
"""The resolver of the host, which is outside."""
_CLEANED: Final = """
iptables -P FORWARD DROP
ip6tables -P FORWARD DROP
ip netns delete outside
ip link delete cni-dns 2>/dev/null || true
nft 'table inet cni-egress; table bridge cni-egress; delete table inet cni-egress; delete table bridge cni-egress'
for family in -4 -6; do while ip $family rule delete priority 40 2>/dev/null; do :; done; done
"""


class Guarded:
    """A guarded network on a lab, and an internet that counts."""

    def __init__(self, scene: Scene, engine: Engine) -> None:
        self.scene = scene
        self.engine = engine
        self.helpers: list[Process] = []
        self.lab: Lab = scene.lab
        self.subnet: Subnet = scene.subnet()
        ipam: JsonObject = {
            "type": "host-local",
            "ranges": [[{"subnet": self.subnet.ipv4}], [{"subnet": self.subnet.ipv6}]],
            "routes": list(defaults(4, 6)),
        }
        main: JsonObject = {"type": "bridge", "bridge": self.subnet.bridge, "isGateway": True, "ipam": ipam}
        egress: JsonObject = {"type": "egress", "allow": list(ALLOW), "capabilities": {"egress": True}}
        self.lan = scene.configure([main])
        self.list = scene.configure([main, egress])
        self.network = scene.network(self.list, *self.made, *FOR_BEACONS)

    @property
    def is_internal(self) -> bool:
        """Whether the engine needs guarded networks to be internal; otherwise their containers need a name server."""
        return self.engine.version >= (28, 1)

    @property
    def made(self) -> Sequence[str]:
        """With what `docker network create` makes a guarded network on this engine."""
        return ("--internal",) if self.is_internal else ()

    @property
    def flags(self) -> Sequence[str]:
        """With what `docker run` makes a container of a guarded network on this engine."""
        return () if self.is_internal else ("--dns", RESPONDER)

    @property
    def rights(self) -> Sequence[str]:
        """All capabilities; those that matter on an engine that asks for some which the kernel does not give."""
        names = ("ALL",) if self.engine.version >= (23,) else ("NET_ADMIN", "NET_RAW", "SYS_ADMIN")
        return tuple(option for name in names for option in ("--cap-add", name))

    def run(self, network: str, *options: str) -> Container:
        """Start a container that sleeps."""
        return self.scene.run(network, *self.flags, *options)

    def serve_names(self) -> None:
        """Start a resolver outside, which is the host's, and `cni-egress`, which asks it."""
        self.lab.write("/etc/resolv.conf", "nameserver 203.0.113.1\n")
        command = str(Path(sys.executable).with_name("cni-egress"))
        self.helpers += [
            self.lab.spawn("ip", "netns", "exec", "outside", sys.executable, "-c", _UPSTREAM),
            self.lab.spawn(command, "run", "--config", "/dev/null"),
        ]
        records = Records(self.lab.path(str(DIRECTORY)))
        wait_until(records.has_responder, "cni-egress answers", 60)

    def seen(self) -> int:
        """How many packets have arrived outside."""
        listed = self.lab.run("ip", "netns", "exec", "outside", "nft", "list", "counter", "inet", "seen", "seen")
        words = listed.stdout.split()
        return int(words[words.index("packets") + 1])

    def beacon(self, network: str, milliseconds: int, *addresses: str) -> None:
        """Run a container with all capabilities whose only program sends from its first instruction on."""
        mounted = ("-v", "/run/beacon:/beacon:ro", "--network", network)
        self.lab.docker(
            "run", "--rm", *self.flags, *self.rights, *mounted, "busybox", "/beacon", str(milliseconds), *addresses
        )


@pytest.fixture(name="guarded")
def make_guarded(private_scene: Scene, engine: Engine) -> Iterator[Guarded]:
    """A guarded network; no executable `egress` is installed, so the daemon has it in its process."""
    lab = private_scene.lab
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is missing, which makes the program that sends from its first instruction on")
    beacon = lab.path("/run/beacon")
    subprocess.run([compiler, "-static", "-O1", "-o", beacon, _BEACON], check=True)
    lab.run("sh", "-euc", _OUTSIDE)
    guarded = Guarded(private_scene, engine)
    try:
        yield guarded
    finally:
        lab.docker("container", "prune", "--force")
        for helper in guarded.helpers:
            helper.kill(signal.SIGTERM)
            helper.wait()
        lab.run("sh", "-c", _CLEANED)


def test_not_one_packet_at_the_start(guarded: Guarded) -> None:
    """Three containers at once with all capabilities: none sends a packet outside; where it is allowed, they do."""
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: guarded.beacon(guarded.network, 300, *CLOSED), range(6)))
    assert guarded.seen() == 0
    guarded.beacon(guarded.network, 100, *OPEN)
    allowed = guarded.seen()
    assert allowed > 0


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("attach", ["auto", "fast"])
def test_a_thousand_starts(guarded: Guarded, attach: str) -> None:
    """As above, a thousand times in each mode, eight at once."""
    if attach != "auto" and not guarded.is_internal:
        pytest.skip("the mode needs Engine 28")
    network = guarded.scene.network(guarded.list, *guarded.made, *FOR_BEACONS, "-o", f"cni.attach={attach}")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: guarded.beacon(network, 50, *CLOSED), range(1000)))
    assert guarded.seen() == 0
    guarded.beacon(network, 100, *OPEN)
    assert guarded.seen() > 0


@pytest.mark.long
def test_what_is_refused_is_refused_at_once(guarded: Guarded) -> None:
    """A program gets an error, not a time-out; what is allowed goes on."""
    container = guarded.run(guarded.network)
    begun = time.monotonic()
    for address in CLOSED:
        shown = container.exec("sh", "-c", f"nc -w 9 {address} 443 2>&1 || true")
        assert "refused" in shown.lower()
    assert time.monotonic() - begun < 8
    assert guarded.seen() == 0
    container.exec("sh", "-c", f"ping -c 1 -w 5 {OPEN[0]}")
    assert guarded.seen() > 0


@pytest.mark.long
def test_a_container_with_more(guarded: Guarded) -> None:
    """The list declares the capability, so a container may bring entries of its own; its neighbors do not have them."""
    neighbor = guarded.run(guarded.network)
    container = guarded.run(f"name={guarded.network},driver-opt=cni.egress.allow={CLOSED[0]} 192.0.2.0/24")
    neighbor.exec("sh", "-c", f"! ping -c 1 -w 1 {CLOSED[0]}")
    assert guarded.seen() == 0
    container.exec("ping", "-c", "1", "-w", "5", CLOSED[0])


def test_kills_and_restarts(guarded: Guarded) -> None:
    """Neither a restart of the container, nor one of the daemons, nor removed tables let a packet out."""
    lab = guarded.lab
    lab.docker(
        "run", *guarded.flags, *guarded.rights, "-d", "--name", "restless",
        "--restart", "always", "-v", "/run/beacon:/beacon:ro",
        "--network", guarded.network, "busybox", "/beacon", "2000", *CLOSED,
    )  # fmt: skip

    def restarts() -> int:
        """How often it was started again and runs now, as far as dockerd has counted."""
        count, status = lab.docker("inspect", "--format", "{{.RestartCount}} {{.State.Status}}", "restless").split()
        return int(count) if status == "running" else 0

    try:
        lab.docker("restart", "--time", "0", "restless")
        lab.restart_daemon(signal.SIGKILL)
        time.sleep(2)
        lab.run("nft", "flush", "ruleset")
        time.sleep(2)
        # A dockerd that is killed in the middle of a start may never again see the end of that container.
        before = restarts()
        wait_until(lambda: restarts() > before, "a start of its own", 30)
        lab.restart_dockerd(signal.SIGKILL)
        time.sleep(2)
        assert guarded.seen() == 0
    finally:
        lab.docker("rm", "--force", "restless")
        # What dockerd lost when it was killed is torn down after some seconds, and needs the plugin.
        wait_until(lambda: not get_objects(ask_status(lab), "endpoints"), "the end of the endpoints", 60)


@pytest.mark.long
@pytest.mark.parametrize("attach", ["auto", "fast", "sandbox"])
def test_the_options_of_a_network(guarded: Guarded, attach: str) -> None:
    """Its list has no `egress`; its containers have the default route, and reach what the options allow."""
    if attach != "auto" and not guarded.is_internal:
        pytest.skip("the mode needs Engine 28")
    options = ("-o", f"cni.egress.allow={OPEN[0]} {ALLOW[1]}", "-o", f"cni.attach={attach}")
    network = guarded.scene.network(guarded.lan, *guarded.made, *options)
    container = guarded.run(network)
    assert "default via" in container.exec("ip", "route")
    assert "refused" in container.exec("sh", "-c", f"nc -w 9 {CLOSED[0]} 443 2>&1 || true").lower()
    assert guarded.seen() == 0
    container.exec("ping", "-c", "1", "-w", "5", OPEN[0])


def test_what_cannot_be_guarded_is_refused(scene: Scene, engine: Engine) -> None:
    """When the network is made, with what to do, and nothing is left; a container, if the network was made before."""
    made = ("--internal",) if engine.version >= (28, 1) else ()
    others = () if made else ("--internal",)
    (main, *_), (macvlan, *_) = bridge(scene.subnet()), LISTS["macvlan"](scene.subnet())
    listed, past = scene.configure([main]), scene.configure([macvlan, {"type": "egress", "allow": []}])

    def refusal(name: str, *options: str) -> str:
        return scene.creation_refusal("--ipam-driver", "null", "-o", f"cni.network={name}", *options)

    assert "write a.example" in refusal(listed, *made, "-o", "cni.egress.allow=https://a.example")
    assert "systemctl enable --now cni-egress" in refusal(listed, *made, "-o", "cni.egress.allow=a.example")
    assert "send past the rules of the host" in refusal(past, *made)
    unnamed = ("--ipam-driver", "null", *made, "-o", "cni.egress.allow=*.example:0")  # its list has the name of it
    assert "*.example:0" in scene.creation_refusal(*unnamed)
    what = "Make it with --internal" if made else "without --internal"
    assert what in refusal(listed, *others, "-o", "cni.egress.allow=192.0.2.1")
    if not made:
        network = scene.network(listed, "-o", "cni.egress.allow=192.0.2.1")
        assert f"--dns {RESPONDER}" in scene.run_refusal(network)


def test_names(guarded: Guarded) -> None:
    """Allowed ones and those of containers resolve; all others fail at once, also at dockerd's own resolver."""
    guarded.serve_names()
    scene, lab = guarded.scene, guarded.lab
    network = scene.network(guarded.lan, *guarded.made, "-o", "cni.egress.allow=allowed.example:*")
    peer, name = guarded.run(network), scene.create(network, *guarded.flags)
    container = lab.container(name)
    for _ in range(2):
        lab.docker("start", name)
        container.exec("ping", "-c", "1", "-w", "9", "allowed.example")
        container.exec("ping", "-c", "1", "-w", "9", peer.name)
        before, begun = guarded.seen(), time.monotonic()
        container.exec("sh", "-c", "! ping -c 1 -w 9 closed.example")
        assert time.monotonic() - begun < 4
        for server in ("127.0.0.11", "203.0.113.1"):
            container.exec("sh", "-c", f"! nslookup secret.closed.example {server}")
        assert guarded.seen() == before
        lab.docker("stop", "-t", "0", name)
    if guarded.is_internal:
        first = lab.docker("run", "--rm", "--network", network, "busybox", "cat", "/etc/resolv.conf")
        assert servers(first) == ["127.0.0.11", RESPONDER]
        lab.docker("network", "disconnect", network, peer.name)
        assert servers(peer.exec("cat", "/etc/resolv.conf")) == ["127.0.0.11"]
        lab.docker("network", "connect", network, peer.name)
        assert servers(peer.exec("cat", "/etc/resolv.conf")) == ["127.0.0.11", RESPONDER]
        peer.exec("ping", "-c", "1", "-w", "9", "allowed.example")


def servers(text: str) -> list[str]:
    """Return the name servers in a resolv.conf."""
    return [line.split()[1] for line in text.splitlines() if line.startswith("nameserver")]


def test_a_second_network_is_a_way_out(guarded: Guarded, beside_ours: Sequence[str]) -> None:
    """A container that has one is refused, whichever it joins first; an internal or guarded one is none."""
    scene, lab = guarded.scene, guarded.lab
    options = (*guarded.made, "-o", f"cni.egress.allow={OPEN[0]}")
    network = scene.network(guarded.lan, *options)
    allowing = scene.network(guarded.lan, *options, "-o", "cni.egress.other-networks=allow")
    ours, _ = scene.bridge_network()
    foreign, inside = scene.builtin_network(), scene.builtin_network("--internal")
    for other in (ours, foreign):
        name = scene.create(network, *guarded.flags)
        lab.docker("network", "connect", other, name)
        error = scene.refusal("start", name)
        assert other in error
        assert "cni.egress.other-networks=allow" in error
    container = guarded.run(network)
    lab.docker("network", "connect", *beside_ours, inside, container.name)
    assert "neither guarded nor internal" in scene.refusal("network", "connect", ours, container.name)
    elsewhere = guarded.run(foreign)
    assert "neither guarded nor internal" in scene.refusal("network", "connect", network, elsewhere.name)
    lab.docker("network", "connect", allowing, elsewhere.name)
    wait_logged(lab, "endpoint.way_out_allowed")


def test_net_admin_is_a_way_out(guarded: Guarded) -> None:
    """Who has it could make links on those of the host, so the container does not start, and nothing is left of it."""
    scene = guarded.scene
    network = scene.network(guarded.lan, *guarded.made, "-o", f"cni.egress.allow={OPEN[0]}")
    for option in ("--privileged", "--cap-add=NET_ADMIN", "--cap-add=SYS_ADMIN"):
        error = scene.run_refusal(network, *guarded.flags, option)
        assert option.replace("=", " ") in error
        assert "cni.egress.net-admin=allow" in error
    wait_until(lambda: not get_objects(ask_status(guarded.lab), "endpoints"), "the end of the endpoints", 30)
    guarded.run(network, "--cap-add=NET_RAW").exec("ping", "-c", "1", "-w", "5", OPEN[0])


def test_a_way_out_that_is_made_later(guarded: Guarded, beside_ours: Sequence[str]) -> None:
    """The daemon cannot refuse a network of another driver; the next round finds it, once, and when it has gone."""
    lab, foreign = guarded.lab, guarded.scene.builtin_network()
    container = guarded.run(guarded.network)
    guarded.scene.refusal("network", "connect", guarded.scene.bridge_network()[0], container.name)
    lab.docker("network", "connect", *beside_ours, foreign, container.name)  # Docker now lists the refused one, too

    def found() -> list[str]:
        lab.request(ADMIN_SOCKET, "POST", "/v1/compare", timeout_s=60)
        listed = as_object(lab.request(ADMIN_SOCKET, "GET", "/v1/endpoints")[1], "endpoints")
        return [name for one in get_objects(listed, "endpoints") for name in get_strings(one, "waysOut")]

    assert found() == [foreign]
    lab.docker("network", "disconnect", foreign, container.name)
    assert found() == []
    assert lab.daemon is not None
    assert lab.daemon.log().count('"endpoint.way_out"') == 1


def test_a_way_out_that_is_made_later_is_closed(guarded: Guarded, beside_ours: Sequence[str]) -> None:
    """Within seconds, without a round; the container keeps its guarded network, and what that allows."""
    lab, foreign = guarded.lab, guarded.scene.builtin_network()
    options = (f"cni.egress.allow={OPEN[0]}", "cni.egress.other-networks=disconnect")
    network = guarded.scene.network(guarded.lan, *guarded.made, *(part for one in options for part in ("-o", one)))
    container = guarded.run(network)

    def networks() -> set[str]:
        shown = lab.docker("inspect", "--format", "{{json .NetworkSettings.Networks}}", container.name)
        return set(json.loads(shown))

    lab.docker("network", "connect", *beside_ours, foreign, container.name)
    wait_logged(lab, "endpoint.way_out_closed")
    assert networks() == {network}
    container.exec("ping", "-c", "1", "-w", "9", OPEN[0])
    before = guarded.seen()
    container.exec("sh", "-c", f"! nc -w 1 {CLOSED[0]} 443")
    assert guarded.seen() == before


def test_published_ports(guarded: Guarded) -> None:
    """They are published on all engines, also after a restart, or the container does not start."""
    scene, lab = guarded.scene, guarded.lab
    options = (*guarded.made, "-o", "cni.egress.allow=192.0.2.1")
    main = json.loads(lab.read(f"/etc/cni/net.d/{guarded.lan}.conflist"))["plugins"][0]
    publishing = scene.configure([main, {"type": "portmap", "capabilities": {"portMappings": True}}])
    network = scene.network(publishing, *options)
    name = scene.create(network, *guarded.flags, "-p", "8080:80")
    asks = ["ip", "netns", "exec", "outside", "busybox", "nc", "-w", "5", "203.0.113.2", "8080"]
    for _ in range(2):
        lab.docker("start", name)
        lab.docker("exec", "-d", name, "busybox", "nc", "-ll", "-p", "80", "-e", "echo", "here")
        wait_until(lambda: "here" in lab.run(*asks, check=False).stdout, "the published port", 30)
        lab.docker("stop", "-t", "0", name)
    assert "has no plugin after its first with the capability portMappings" in scene.run_refusal(
        scene.network(guarded.lan, *options), *guarded.flags, "-p", "8081:80"
    )


@pytest.mark.long
def test_an_engine_that_boots(guarded: Guarded, beside_ours: Sequence[str]) -> None:
    """It answers nothing, and starts the containers that ran before: also those with another, internal network."""
    scene, lab = guarded.scene, guarded.lab
    container = guarded.run(guarded.network, "--restart", "always")
    lab.docker("network", "connect", *beside_ours, scene.builtin_network("--internal"), container.name)
    lab.restart_dockerd(signal.SIGKILL)
    running = ("inspect", "--format", "{{.State.Running}}", container.name)
    wait_until(lambda: lab.docker(*running) == "true", "the container runs again", 60)
    container.exec("ping", "-c", "1", "-w", "9", OPEN[0])
    before = guarded.seen()
    container.exec("sh", "-c", f"! nc -w 1 {CLOSED[0]} 443")
    assert guarded.seen() == before
    if guarded.is_internal:
        assert servers(container.exec("cat", "/etc/resolv.conf")) == ["127.0.0.11", RESPONDER]


@pytest.mark.long
def test_beside_ufw(guarded: Guarded) -> None:
    """What it refuses stays refused, names included, until it forwards; its reload and its end open nothing."""
    _require("ufw")
    guarded.serve_names()
    lab = guarded.lab
    container = guarded.run(guarded.scene.network(guarded.lan, *guarded.made, *OPEN_BY_NAME))
    before = guarded.seen()
    lab.run("ufw", "--force", "enable")
    try:
        container.exec("sh", "-c", f"! nc -w 1 {OPEN[0]} 443")
        container.exec("sh", "-c", "! ping -c 1 -w 9 allowed.example")
        assert guarded.seen() == before
        lab.run("ufw", *UFW.format(subnet=guarded.subnet.ipv4).split())
        for then in ("status", "reload"):
            lab.run("ufw", then)
            _assert_guarded(guarded, container)
    finally:
        lab.run("ufw", "--force", "disable")
        for tool in ("iptables", "ip6tables"):  # it leaves its chains, which are empty
            lab.run("sh", "-c", f"{tool}-save | grep -v ufw | {tool}-restore; {tool} -P FORWARD ACCEPT")
    _assert_guarded(guarded, container)


@pytest.mark.long
def test_beside_firewalld(guarded: Guarded) -> None:
    """Its zone *trusted* has the subnet, which is enough; a reload and its end open nothing."""
    _require("firewalld", "dbus-daemon")
    guarded.serve_names()
    lab = guarded.lab
    container = guarded.run(guarded.scene.network(guarded.lan, *guarded.made, *OPEN_BY_NAME))
    before = guarded.seen()
    lab.run("mkdir", "-p", "/run/dbus")
    guarded.helpers += [lab.spawn("dbus-daemon", "--system", "--nofork")]
    wait_until(lambda: lab.path("/run/dbus/system_bus_socket").exists(), "the bus", 30)
    firewalld = lab.spawn("firewalld", "--nofork", "--nopid")
    try:
        wait_until(lambda: lab.run("firewall-cmd", "--state", check=False).returncode == 0, "firewalld runs", 60)
        container.exec("sh", "-c", f"! nc -w 1 {OPEN[0]} 443")
        container.exec("sh", "-c", "! ping -c 1 -w 9 allowed.example")
        assert guarded.seen() == before
        for arguments in FIREWALLD:
            lab.run("firewall-cmd", *arguments.format(subnet=guarded.subnet.ipv4).split())
        _assert_guarded(guarded, container)
    finally:
        firewalld.kill(signal.SIGTERM)
        firewalld.wait()
    _assert_guarded(guarded, container)


def _require(*programs: str) -> None:
    """Skip a test of programs that are not installed."""
    for program in programs:
        if shutil.which(program, path=SEARCH_PATH) is None:
            pytest.skip(f"{program} is not installed; `make test-egress` installs it")


def _assert_guarded(guarded: Guarded, container: Container) -> None:
    """Fail unless what is allowed is reached, by address and by name, and nothing else."""
    container.exec("ping", "-c", "1", "-w", "9", OPEN[0])
    container.exec("ping", "-c", "1", "-w", "9", "allowed.example")
    before = guarded.seen()
    for address in CLOSED:
        container.exec("sh", "-c", f"! nc -w 2 {address} 443")
    assert guarded.seen() == before
