# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DeleteEndpoint returns before the plugins' DEL; what follows finds the host as if it had waited.

While the gate, a file, exists, the plugin `slow` delays each DEL that follows its ADD, and so the DEL of the plugins
before it. It records its calls.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

import pytest

from cni_bridge_spec import JsonObject, get_object, get_str
from tests.lab import PLUGIN_SOCKET, Lab, wait_until
from tests.system.calls import BOTH, ENDPOINT, NETWORK, call, create_endpoint, create_network, wait_torn_down
from tests.system.peer import HOST_IP, ask, outside, serving
from tests.system.plugin_lists import PORTMAP
from tests.system.scene import PREV_RESULT, Scene, Subnet, bridge, reaches, rules_of

Done = TypeVar("Done")

GATE: Final = "/run/gate"
ORDER: Final = "/run/order"
SLOW: Final[JsonObject] = {"type": "slow"}
NEXT: Final = {**BOTH, "EndpointID": "e0" * 32}

_PASS: Final = f'exec python3 -c "{PREV_RESULT}"'
_SCRIPT: Final = f"""
added=/run/added-$CNI_CONTAINERID
[ "$CNI_COMMAND" = ADD ] && touch "$added"
if [ "$CNI_COMMAND" = DEL ] && [ -e "$added" ]; then
    while [ -e {GATE} ]; do sleep 0.05; done
    rm "$added"
fi
echo "$CNI_COMMAND" >>{ORDER}
{_PASS}
"""


@pytest.fixture
def slow(scene: Scene) -> Iterator[Scene]:
    """A scene with the plugin `slow` and a closed gate."""
    yield from _with_gate(scene)


@pytest.fixture
def private_slow(private_scene: Scene) -> Iterator[Scene]:
    """The same on a lab whose daemon may be stopped."""
    yield from _with_gate(private_scene)


def _with_gate(scene: Scene) -> Iterator[Scene]:
    scene.plugin("slow", _SCRIPT)
    scene.lab.remove(ORDER)  # the containers of the previous test were removed after it
    scene.lab.write(GATE, "")
    yield scene
    scene.lab.remove(GATE)
    wait_torn_down(scene.lab)
    scene.lab.remove(ORDER)


def order(lab: Lab) -> list[str]:
    """Return the calls of `slow`, in order."""
    return lab.read(ORDER).split()


def begin_waiting(lab: Lab, threads: ThreadPoolExecutor, work: Callable[..., Done], *words: object) -> Future[Done]:
    """Start `work(*words)`; return when the daemon has logged that one of its calls waits for a pending teardown."""
    daemon = lab.daemon
    assert daemon is not None
    logged = len(daemon.log())
    begun = threads.submit(work, *words)
    wait_until(lambda: begun.done() or "endpoint.waits" in daemon.log()[logged:], "a call that waits")
    assert not begun.done()
    return begun


def fixed(subnet: Subnet) -> tuple[str, Sequence[JsonObject]]:
    """Return an address, and plugins that give it to every container."""
    main, *others = bridge(subnet)
    address = f"10.80.{subnet.number}.9"
    return address, [{**main, "ipam": {"type": "static", "addresses": [{"address": f"{address}/24"}]}}, *others]


def test_docker_does_not_wait_for_del(slow: Scene) -> None:
    """Neither the next endpoint, nor a container on another network, nor the removal of the network waits for DEL."""
    lab = slow.lab
    network, subnet = slow.bridge_network()
    create_network(lab, slow.configure([*bridge(slow.subnet()), SLOW]))
    create_endpoint(lab)
    assert call(lab, "DeleteEndpoint", BOTH) == {}
    assert get_object(create_endpoint(lab, NEXT), "Interface")
    assert call(lab, "DeleteEndpoint", NEXT) == {}
    assert call(lab, "DeleteNetwork", {"NetworkID": NETWORK}) == {}
    assert reaches(slow.run(network), subnet.gateway)
    assert order(lab) == ["ADD", "ADD"]


@pytest.mark.long
def test_a_hanging_add_is_not_repeated(private_slow: Scene) -> None:
    """ADD is not repeated after a time-out, even if an endpoint has left meanwhile: Docker would wait twice as long."""
    lab = private_slow.lab
    lab.stop_daemon(signal.SIGTERM)
    lab.start_daemon("--plugin-timeout", "2")
    private_slow.plugin("stuck", f"[ -e /run/stuck ] && [ $CNI_COMMAND = ADD ] && sleep 600; {_PASS}")
    create_network(lab, private_slow.configure([*bridge(private_slow.subnet()), SLOW, {"type": "stuck"}]))
    create_endpoint(lab)
    assert call(lab, "DeleteEndpoint", BOTH) == {}
    lab.write("/run/stuck", "")
    with ThreadPoolExecutor() as threads:
        following = threads.submit(create_endpoint, lab, NEXT)
        wait_until(lambda: order(lab).count("ADD") == 2, "ADD of the plugin before the hanging one")
        lab.remove(GATE)
        assert '"stuck" failed (add)' in get_str(following.result(), "Err")
    assert order(lab).count("ADD") == 2
    lab.remove("/run/stuck")
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


def test_rules_that_are_found_by_address(slow: Scene) -> None:
    """`firewall` removes rules by address: its DEL runs before the ADD of the next container with that address."""
    lab = slow.lab
    address, plugins = fixed(slow.subnet())
    network = slow.network(slow.configure([*plugins, SLOW]))
    first = slow.run(network)
    rules = rules_of(lab, address)
    assert rules
    lab.docker("rm", "-f", first.name)
    with ThreadPoolExecutor() as threads:
        following = begin_waiting(lab, threads, slow.run, network)
        lab.remove(GATE)
        following.result()
    wait_torn_down(lab)
    assert rules_of(lab, address) == rules
    assert order(lab) == ["ADD", "DEL", "ADD"]


def test_the_port_of_a_leaving_container_is_chosen_first(slow: Scene) -> None:
    """The first port of a range counts as free although the rules of its former container still exist."""
    lab = slow.lab
    network = slow.network(slow.configure([*bridge(slow.subnet()), PORTMAP, SLOW]))
    other = slow.network(slow.configure([*bridge(slow.subnet()), PORTMAP]))
    first = slow.run(network, "-p", "8401:80")
    lab.docker("rm", "-f", first.name)
    with ThreadPoolExecutor() as threads:
        following = begin_waiting(lab, threads, slow.run, other, "-p", "8401-8402:80")
        lab.remove(GATE)
        container = following.result()
    wait_torn_down(lab)
    published = lab.run("iptables", "-t", "nat", "-S").stdout
    assert "--dport 8401" in published
    assert "--dport 8402" not in published
    lab.docker("rm", "-f", container.name)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.representatives("2")
def test_stopping_a_container_does_not_wait_for_del(slow: Scene, count: int) -> None:
    """Engines before 29 publish its ports on each of its networks in turn; none waits for the previous one's DEL."""
    lab = slow.lab
    networks = [slow.network(slow.configure([*bridge(slow.subnet()), PORTMAP, SLOW])) for _ in range(count)]
    name = slow.create(networks[0], "-p", "8403:80")
    for network in networks[1:]:
        lab.docker("network", "connect", network, name)
    lab.docker("start", name)
    lab.docker("stop", "--time", "0", name)
    assert order(lab).count("DEL") == 0
    lab.remove(GATE)
    wait_torn_down(lab)
    assert "--dport 8403" not in lab.run("iptables", "-t", "nat", "-S").stdout


@pytest.mark.long
def test_ports_of_a_container_that_leaves_one_network(slow: Scene) -> None:
    """They are published on another one of its networks, and reachable, before the first DEL has completed."""
    lab = slow.lab
    first, second = (
        slow.network(slow.configure([*bridge(slow.subnet()), PORTMAP, SLOW]), name=f"{prefix}-leaving")
        for prefix in ("aaa", "bbb")  # libnetwork makes the first by name the gateway
    )
    name = slow.create(first, "-p", "8404:80")
    lab.docker("network", "connect", second, name)
    lab.docker("start", name)
    container = lab.container(name)
    with outside(lab) as there, serving(lab, container, 80):
        for network, other in ((first, second), (second, first)):
            assert ask(lab, there, HOST_IP, 8404) == name
            lab.docker("network", "disconnect", network, name)
            assert ask(lab, there, HOST_IP, 8404) == name
            lab.docker("network", "connect", network, name)
            lab.docker("network", "disconnect", other, name)
            lab.docker("network", "connect", other, name)
        assert ask(lab, there, HOST_IP, 8404) == name
        assert order(lab).count("DEL") == 0


def test_a_host_device_is_returned_before_delete_endpoint_returns(slow: Scene) -> None:
    """DeleteEndpoint waits until `host-device` has returned the device: the next container finds it by its MAC."""
    lab = slow.lab
    mac = "02:00:00:00:de:01"
    lab.run("ip", "link", "add", "device0", "address", mac, "type", "veth", "peer", "name", "device0-end")
    ranges = [[{"subnet": slow.subnet().ipv4}]]
    device: JsonObject = {"type": "host-device", "hwaddr": mac, "ipam": {"type": "host-local", "ranges": ranges}}
    first, second = (slow.network(slow.configure([device, *more])) for more in ([SLOW], []))
    container = slow.run(first)
    with ThreadPoolExecutor() as threads:
        removal = begin_waiting(lab, threads, lab.docker, "rm", "-f", container.name)
        lab.remove(GATE)
        removal.result()
    lab.run("ip", "link", "show", "device0")
    lab.docker("rm", "-f", slow.run(second).name)
    lab.run("ip", "link", "del", "device0")


def test_a_stop_waits_for_teardowns(private_slow: Scene) -> None:
    """A daemon that is stopped, perhaps to be uninstalled, completes the teardowns of deleted endpoints first."""
    lab = private_slow.lab
    create_network(lab, private_slow.configure([*bridge(private_slow.subnet()), SLOW]))
    before = lab.state()
    create_endpoint(lab)
    assert call(lab, "DeleteEndpoint", BOTH) == {}
    daemon = lab.daemon
    assert daemon is not None
    daemon.kill(signal.SIGTERM)
    wait_until(lambda: "daemon.stopping" in daemon.log(), "the end of the daemon")
    assert daemon.returncode is None
    lab.remove(GATE)
    assert daemon.wait() == 0
    assert "endpoint.torn_down" in daemon.log()
    assert lab.wait_clean(before) == ""
    lab.start_daemon()
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


@pytest.mark.long
def test_a_stop_waits_for_teardowns_that_begin_later(private_slow: Scene) -> None:
    """A DeleteEndpoint that waits for a CreateEndpoint when the daemon is stopped starts its teardown afterwards."""
    lab = private_slow.lab
    late = f'[ "$CNI_COMMAND" != ADD ] || {{ touch /run/adding; while [ -e {GATE} ]; do sleep 0.05; done; }}'
    private_slow.plugin("late", f"{late}; {_PASS}")
    create_network(lab, private_slow.configure([*bridge(private_slow.subnet()), {"type": "late"}]))
    before = lab.state()
    daemon = lab.daemon
    assert daemon is not None
    with ThreadPoolExecutor() as threads:
        creation = threads.submit(create_endpoint, lab)
        wait_until(lab.path("/run/adding").exists, "the plugin")
        deletion = threads.submit(call, lab, "DeleteEndpoint", BOTH)
        wait_until(lambda: _received_calls(lab) == 2, "both calls")
        daemon.kill(signal.SIGTERM)
        wait_until(lambda: "daemon.stopping" in daemon.log(), "the stop of the daemon")
        lab.remove(GATE)
        assert get_object(creation.result(), "Interface")
        assert deletion.result() == {}
    assert daemon.wait() == 0
    assert "endpoint.torn_down" in daemon.log()
    assert "daemon.cut_off" not in daemon.log()
    lab.remove("/run/adding")
    assert lab.wait_clean(before) == ""
    lab.start_daemon()
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


@pytest.mark.long
def test_a_stop_is_limited_by_the_drain_timeout(private_slow: Scene) -> None:
    """A teardown that does not complete within `--drain-timeout` is logged, and the next run completes it."""
    lab = private_slow.lab
    lab.stop_daemon(signal.SIGTERM)
    lab.start_daemon("--drain-timeout", "1")
    create_network(lab, private_slow.configure([*bridge(private_slow.subnet()), SLOW]))
    before = lab.state()
    create_endpoint(lab)
    assert call(lab, "DeleteEndpoint", BOTH) == {}
    daemon = lab.daemon
    assert daemon is not None
    assert lab.stop_daemon(signal.SIGTERM) == 0
    (cut_off,) = (line for line in daemon.log().splitlines() if "daemon.cut_off" in line)
    assert ENDPOINT in cut_off
    lab.remove(GATE)
    lab.start_daemon()
    assert lab.wait_clean(before) == ""
    call(lab, "DeleteNetwork", {"NetworkID": NETWORK})


def _received_calls(lab: Lab) -> int:
    """Return how many connections to the plugin socket, from the lab, are open whose request the daemon has read."""
    connections = lab.run("ss", "--no-header", "--unix", "src", PLUGIN_SOCKET).stdout.splitlines()
    return sum(line.split()[1:3] == ["ESTAB", "0"] for line in connections)
