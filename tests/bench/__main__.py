# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What cni-bridge costs in addition to the plugins: `make bench`, in a lab.

Each round makes the same attachment in three ways, one after the other, so that all run on the same machine load:

* *bare*: the plugin's ADD and DEL, run by a shell;
* *moves*: the time that the kernel takes to move such a link out of a namespace and back;
* *ours*: CreateEndpoint, Join, Leave and DeleteEndpoint through the plugin socket, and the teardown that follows.

Before that, `executions` measures the execution of a plugin alone, and `cnm` our plugin of that name; after it,
`addresses` and `etcd` measure an address.
"""

import argparse
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cni_bridge_spec import JsonObject
from cnm_bridge.system.kernel.netlink.socket import Netlink
from cnm_bridge.system.kernel.netns import current_namespace, enter, namespace_id, open_namespace
from tests.bench.addresses import measure_addresses
from tests.bench.cnm import measure_cnm
from tests.bench.etcd import measure_etcd
from tests.bench.executions import measure_executions
from tests.bench.statistics import Series, render_table

SOCKET: Final = "/run/docker/plugins/cni-bridge.sock"
CONFIGURATIONS: Final = Path("/etc/cni/net.d")
BARE: Final = Path(__file__).with_name("bare.sh")
CALLS: Final = ("CreateEndpoint", "Join", "Leave", "DeleteEndpoint")
TEARDOWN: Final = "teardown, in the background"
LOG: Final = Path("/run/bench-daemon.log")
RTM_NEWLINK: Final = 16

LISTS: Final[dict[str, JsonObject]] = {
    "bridge, host-local": {
        "type": "bridge",
        "bridge": "bench0",
        "isGateway": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.90.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    },
    "bridge, host-local, masquerade": {
        "type": "bridge",
        "bridge": "bench1",
        "isGateway": True,
        "ipMasq": True,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.91.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    },
    "ptp, host-local": {
        "type": "ptp",
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.92.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]},
    },
}


class UnixConnection(http.client.HTTPConnection):
    """HTTP over the plugin socket."""

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(SOCKET)


def call(method: str, body: JsonObject | None = None) -> float:
    """Call the daemon as dockerd does, on a new connection; return the milliseconds that it took."""
    duration_ms, _ = ask(method, body)
    return duration_ms


def ask(method: str, body: JsonObject | None = None) -> tuple[float, JsonObject]:
    """Do as `call`, and return the reply too."""
    started = time.perf_counter()
    connection = UnixConnection("plugin")
    connection.request("POST", f"/{method}", json.dumps(body) if body is not None else b"")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    duration_ms = (time.perf_counter() - started) * 1000
    error = answer.get("Err") or answer.get("Error")
    if error:
        raise RuntimeError(error)
    return duration_ms, answer


def ours(network: str) -> dict[str, float]:
    """Return the milliseconds of the four calls of one endpoint, and of its teardown."""
    endpoint = uuid.uuid4().hex * 2
    both = {"NetworkID": network, "EndpointID": endpoint}
    interface = {"Address": "", "AddressIPv6": "", "MacAddress": ""}
    bodies: dict[str, JsonObject] = {
        "CreateEndpoint": {**both, "Interface": interface, "Options": {}},
        "Join": {**both, "SandboxKey": f"/var/run/docker/netns/{endpoint[:12]}", "Options": {}},
        "Leave": both,
        "DeleteEndpoint": both,
    }
    return {**{name: call(f"NetworkDriver.{name}", bodies[name]) for name in CALLS}, TEARDOWN: wait_torn_down(endpoint)}


def wait_torn_down(endpoint: str) -> float:
    """Wait for the end of an endpoint; return the milliseconds of its teardown according to the daemon's log."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        lines, _, _ = LOG.read_text().rpartition("\n")
        for line in lines.splitlines()[-20:]:
            if endpoint in line and "endpoint.torn_down" in line:
                return float(json.loads(line)["duration_ms"])
        time.sleep(0.02)
    raise RuntimeError(f"endpoint {endpoint} is not torn down; see {LOG}")


def bare(plugin: str, configuration: Path) -> tuple[float, float]:
    """Return the milliseconds of the plugin's ADD and DEL without us."""
    done = subprocess.run(
        [BARE, plugin, configuration, f"bench-{uuid.uuid4().hex}"], check=True, capture_output=True, text=True
    )
    add_us, del_us = done.stdout.split()
    return int(add_us) / 1000, int(del_us) / 1000


def moves() -> float:
    """Return the milliseconds that the kernel takes to move a veth out of a namespace, and back."""
    name = f"bench-{uuid.uuid4().hex}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "eth1"], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "eth0", "up"], check=True)
    with current_namespace() as host, open_namespace(Path("/run/netns") / name) as inside:
        out_ms = in_thread(lambda: move(host, "eth0", "benchlink", into=inside))
        back_ms = in_thread(lambda: move(inside, "benchlink", "eth0"))
    subprocess.run(["ip", "netns", "del", name], check=True)
    return out_ms + back_ms


def move(target: int, name: str, new_name: str, into: int | None = None) -> float:
    """Move a link into the namespace `target`, from the thread's namespace, or from `into`, which the thread enters."""
    if into is not None:
        enter(into, host=namespace_id(target))
    with Netlink(reply_limit_s=5) as netlink:
        (link,) = netlink.request(18, {}, (("IFLA_IFNAME", name),))  # RTM_GETLINK
        index = link.field("index")
        started = time.perf_counter()
        netlink.request(RTM_NEWLINK, {"index": index}, (("IFLA_NET_NS_FD", target), ("IFLA_IFNAME", new_name)))
        return (time.perf_counter() - started) * 1000


def in_thread(work: Callable[[], float]) -> float:
    """Do work that enters a namespace in a new thread."""
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def start_daemon() -> "subprocess.Popen[bytes]":
    """Start the daemon; print how long it took until it listened, and until it answered."""
    started = time.perf_counter()
    with LOG.open("wb") as log:
        daemon = subprocess.Popen([sys.executable, "-m", "cnm_bridge", "serve", "--log-format", "json"], stderr=log)
    while not Path(SOCKET).is_socket():
        time.sleep(0.001)
    listening_ms = (time.perf_counter() - started) * 1000
    while True:
        try:
            call("Plugin.Activate")
        except ConnectionRefusedError:  # bound, and about to listen
            time.sleep(0.001)
        else:
            break
    answered_ms = (time.perf_counter() - started) * 1000
    print(
        f"from the daemon's start until it listened: {listening_ms:.0f} ms, until it answered: {answered_ms:.0f} ms\n"
    )
    return daemon


def cpu_ms(pid: int) -> tuple[float, float]:
    """Return the user and system milliseconds that a process has used, without its children (proc(5), stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    tick_ms = 1000 / os.sysconf("SC_CLK_TCK")
    return int(fields[11]) * tick_ms, int(fields[12]) * tick_ms


def measure(title: str, plugin: JsonObject, rounds: int, daemon_pid: int) -> None:
    """Measure one list and print its table."""
    name = f"bench{len(list(CONFIGURATIONS.iterdir()))}"
    single = {"cniVersion": "1.0.0", "name": name, **plugin}
    bare_file = Path(f"/run/{name}.json")
    bare_file.write_text(json.dumps(single))
    (CONFIGURATIONS / f"{name}.conflist").write_text(
        json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": [plugin]})
    )
    network = uuid.uuid4().hex * 2
    generic = {"com.docker.network.generic": {"cni.network": name}}
    call("NetworkDriver.CreateNetwork", {"NetworkID": network, "Options": generic, "IPv4Data": [], "IPv6Data": []})
    bare(str(plugin["type"]), bare_file)  # the first ADD makes the bridge and the shared chains
    ours(network)
    series = {key: Series() for key in ("bare ADD", "bare DEL", "moves", *CALLS, TEARDOWN)}
    before = cpu_ms(daemon_pid)
    for _ in range(rounds):
        add_ms, del_ms = bare(str(plugin["type"]), bare_file)
        samples = {"bare ADD": add_ms, "bare DEL": del_ms, "moves": moves(), **ours(network)}
        for key, value in samples.items():
            series[key].add(value)
    user_ms, system_ms = ((now - then) / rounds for now, then in zip(cpu_ms(daemon_pid), before, strict=True))
    call("NetworkDriver.DeleteNetwork", {"NetworkID": network})
    calls = Series.sums(series[key] for key in CALLS)
    total = Series.sums((calls, series[TEARDOWN]))
    plugins = Series.sums((series["bare ADD"], series["bare DEL"]))
    beyond = total.minus(plugins)
    rows = {
        **{f"ours: {key}": series[key] for key in CALLS},
        "ours: the four calls, which Docker waits for": calls,
        f"ours: {TEARDOWN}": series[TEARDOWN],
        "ours: all": total,
        "bare plugin: ADD": series["bare ADD"],
        "bare plugin: DEL": series["bare DEL"],
        "in addition to the plugins": beyond,
        "  of it the kernel's two moves": series["moves"],
        "  of it our own work": beyond.minus(series["moves"]),
    }
    print(render_table(f"{title} ({rounds} rounds)", rows))
    print(
        f"CPU time of the daemon in all: {user_ms:.1f} ms user, {system_ms:.1f} ms system\n",
        flush=True,
    )


def main() -> None:
    """Measure each list."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--rounds", type=int, default=50)
    rounds: int = parser.parse_args().rounds
    if not os.environ.get("CNI_BRIDGE_LAB"):
        sys.exit("benchmarks run in a lab: make bench")
    measure_executions(4 * rounds)  # before the daemon runs, which would compete for the CPU
    measure_cnm(rounds)
    CONFIGURATIONS.mkdir(parents=True, exist_ok=True)
    daemon = start_daemon()
    try:
        for title, plugin in LISTS.items():
            measure(title, plugin, rounds, daemon.pid)
        measure_addresses(CONFIGURATIONS, rounds, call=ask, bare=bare)
        measure_etcd(rounds, bare=bare)
    finally:
        daemon.terminate()
        daemon.wait()


main()
