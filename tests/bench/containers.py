# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The time of a whole `docker run --rm busybox true`, on our networks and on Docker's own, for each engine.

`python -m tests.bench.containers`; each engine has a lab of its own. Each round runs a container on every network in
turn, in an order of its own, and all after the same pause, so that all run on the same machine load. The cost of a
network is the difference to `none` in the same round. For our networks, the daemon's metrics have the time of the
plugins and of the calls; the rest is the engine's. A measurement starts when the previous endpoints are torn down and
the kernel has had time to remove their namespaces. The time of the teardown is a row of its own, and its effect on the
next container shows in the tables with several containers.
"""

import argparse
import json
import os
import random
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from cni_bridge_spec import JsonObject, JsonValue
from cnm_bridge.core.settings import AttachOption
from tests.bench import bare_driver
from tests.bench.statistics import Series, render_table
from tests.lab import ADMIN_SOCKET, Engine, Lab, find_engine, find_plugins, known_engines, wait_until

SEVERAL: Final = 8
MANY: Final = 20
"""In a row: every container but the first runs during the teardown of the previous one."""
PAUSE_S: Final = 1.1
"""After each measurement, on all networks alike: the kernel removes a namespace with its links after the end of the
container, and the daemon answers with the same metrics for a second."""
TICK_MS: Final = 1000 / os.sysconf("SC_CLK_TCK")
RUN: Final = ("docker", "run", "--rm", "--network")
COMMAND: Final = ("busybox", "true")
# Each `wait` returns the status of its process: a failure ends the script.
AT_ONCE: Final = """
pids=
count=$1; shift
for i in $(seq "$count"); do docker run --rm --network "$@" busybox true & pids="$pids $!"; done
for pid in $pids; do wait "$pid" || exit 1; done
"""
IN_A_ROW: Final = """
count=$1; shift
for i in $(seq "$count"); do docker run --rm --network "$@" busybox true || exit 1; done
"""
NONE: Final = "none"
USER_BRIDGE: Final = "user bridge"
USER_BRIDGE_WITH_PORT: Final = "user bridge, published port"
BUILT_IN: Final = {
    NONE: ("none",),
    "default bridge": ("bridge",),
    USER_BRIDGE: ("user",),
    USER_BRIDGE_WITH_PORT: ("user", "--publish", "80"),
}
OURS: Final = {
    "ours: bridge, masquerade": ("ours",),
    "ours: bridge, masquerade, firewall": ("ours-firewall",),
    "ours: bridge, masquerade, guarded": ("ours-guarded",),
    "ours: bridge, masquerade, portmap, published port": ("ours-portmap", "--publish", "80"),
}
BARE: Final = {
    name.replace("ours", "bare"): (network[0].replace("ours", "bare"), *network[1:])
    for name, network in OURS.items()
    if "guarded" not in name
}
"""The same lists by a driver that does nothing else (`tests/bench/bare_driver.py`): the floor for ours."""
NETWORKS: Final = {**BUILT_IN, **OURS, **BARE}
"""The name of each measurement, and its Docker network with further options of `docker run`."""
PLUGINS: Final[dict[str, list[JsonObject]]] = {
    "ours": [],
    "ours-firewall": [{"type": "firewall"}],
    "ours-guarded": [{"type": "egress", "allow": ["192.0.2.1:443"], "capabilities": {"egress": True}}],
    "ours-portmap": [{"type": "portmap", "capabilities": {"portMappings": True}}],
}
"""Our Docker networks, and the plugins that follow `bridge` in their lists."""
OF_CALLS: Final = "cni_bridge_call_duration_seconds_sum"
OF_PLUGINS: Final = "cni_bridge_plugin_duration_seconds_sum"
"""The daemon's metrics that have the time spent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """The milliseconds of the daemon's plugins and calls, according to its metrics."""

    add: float
    delete: float
    calls: float

    def since(self, before: "Spent") -> "Spent":
        """Return what was spent since an earlier reading."""
        return Spent(add=self.add - before.add, delete=self.delete - before.delete, calls=self.calls - before.calls)


@dataclass(frozen=True, slots=True)
class Spending:
    """The same for all rounds, and the time from a container's end to the end of its teardown."""

    adds: Series = field(default_factory=Series)
    deletes: Series = field(default_factory=Series)
    calls: Series = field(default_factory=Series)
    afterwards: Series = field(default_factory=Series)


def main(arguments: Sequence[str]) -> None:
    """Measure on each engine."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.containers")
    parser.add_argument("--rounds", type=_rounds, default=20)
    parser.add_argument("--engine", action="append", metavar="VERSION", help="may be repeated; default: all known ones")
    parser.add_argument("--plugins", metavar="VERSION", help="CNI plugins other than the machine's")
    parser.add_argument("--attach", type=AttachOption, default=AttachOption.MOVE, help="default: move")
    options = parser.parse_args(arguments)
    plugins = find_plugins(options.plugins) if options.plugins else None
    for engine in [find_engine(wanted) for wanted in options.engine or ()] or known_engines():
        with Lab(engine=engine, plugins=plugins) as lab:
            _make_networks(lab, options.attach)
            _measure_one(lab, engine, options.rounds)
            rounds = max(options.rounds // 4, 1)
            title = f"{SEVERAL} times docker run --rm at once, engine {engine.name}"
            _measure_several(lab, title, AT_ONCE, SEVERAL, rounds)
            title = f"{MANY} times docker run --rm in a row, engine {engine.name}"
            _measure_several(lab, title, IN_A_ROW, MANY, max(rounds // 2, 1))


def _rounds(text: str) -> int:
    rounds = int(text)
    if rounds < 1:
        raise ValueError(text)
    return rounds


def _make_networks(lab: Lab, attach: AttachOption) -> None:
    """Make the networks, and run a container on each, which makes the bridge and the shared chains."""
    lab.start_daemon("--log-format", "json", "--attach", attach)
    lab.docker("network", "create", "user")
    for number, (name, chained) in enumerate(PLUGINS.items()):
        bridge: JsonObject = {
            "type": "bridge",
            "bridge": f"bench{number}",
            "isGateway": True,
            "ipMasq": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": f"10.9{number}.0.0/16"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        document: JsonObject = {"cniVersion": "1.0.0", "name": name, "plugins": [bridge, *chained]}
        lab.write(f"/etc/cni/net.d/{name}.conflist", document)
        internal = ["--internal"] if name == "ours-guarded" else []
        lab.docker(
            "network",
            "create",
            "-d",
            "cni-bridge",
            "--ipam-driver",
            "null",
            *internal,
            "-o",
            f"cni.network={name}",
            name,
        )
    socket = "/run/docker/plugins/bare.sock"
    mechanism = "move" if attach in {AttachOption.AUTO, AttachOption.MOVE} else "sandbox"
    lab.spawn(sys.executable, "-m", "tests.bench.bare_driver", socket, mechanism)
    wait_until(lab.path(socket).exists, "the socket of the bare driver", 30)
    for name, *_ in BARE.values():
        of_ours = f"cni.network={name.replace('bare', 'ours')}"
        lab.docker("network", "create", "-d", "bare", "--ipam-driver", "null", "-o", of_ours, name)
    for network in NETWORKS.values():
        lab.run(*RUN, *network, *COMMAND)
    _wait_torn_down(lab, 0, len(OURS))
    _wait_bare(lab)


def _measure_one(lab: Lab, engine: Engine, rounds: int) -> None:
    """Measure one container at a time, and the parts of its time on our networks."""
    series = {name: Series() for name in NETWORKS}
    spending = {name: Spending() for name in OURS}
    time.sleep(PAUSE_S)
    before = _read_spent(lab)
    for number in range(rounds):
        for name in _shuffled(number):
            log_length = _log_length(lab)
            series[name].add(_time_ms(lab, *RUN, *NETWORKS[name], *COMMAND))
            if name in OURS:
                spending[name].afterwards.add(_wait_torn_down(lab, log_length, 1))
            _wait_bare(lab)
            time.sleep(PAUSE_S)
            if name in OURS:
                now = _read_spent(lab)
                spent, before = now.since(before), now
                spending[name].adds.add(spent.add)
                spending[name].deletes.add(spent.delete)
                spending[name].calls.add(spent.calls)
    over = _over_none(series)
    rows = dict(series)
    for name, value in over.items():
        rows[f"over none: {name}"] = value
        if name in OURS:
            spent_there = spending[name]
            rows |= {
                f"  of it the plugins' ADDs ({OURS[name][0]})": spent_there.adds,
                f"  of it the rest of our calls ({OURS[name][0]})": spent_there.calls.minus(spent_there.adds),
                f"  of it the engine's own work ({OURS[name][0]})": value.minus(spent_there.calls),
                f"  afterwards, until all is torn down ({OURS[name][0]})": spent_there.afterwards,
                f"    of it the plugins' DELs ({OURS[name][0]})": spent_there.deletes,
            }
    print(render_table(f"docker run --rm, engine {engine.name} ({rounds} rounds)", rows))
    _print_ratios(over)


def _measure_several(lab: Lab, title: str, script: str, count: int, rounds: int) -> None:
    """Measure the time of several containers, and the processor time of each: the machine's and the daemon's."""
    series = {name: Series() for name in NETWORKS}
    afterwards = {name: Series() for name in OURS}
    processors = {name: Series() for name in NETWORKS}
    daemons = {name: Series() for name in OURS}
    for number in range(rounds):
        for name in _shuffled(number):
            log_length = _log_length(lab)
            machine_ms, daemon_ms = _machine_ms(), _daemon_ms(lab)
            series[name].add(_time_ms(lab, "sh", "-c", script, "several", str(count), *NETWORKS[name]))
            if name in OURS:
                afterwards[name].add(_wait_torn_down(lab, log_length, count))
                daemons[name].add((_daemon_ms(lab) - daemon_ms) / count)
            _wait_bare(lab)
            time.sleep(PAUSE_S)
            processors[name].add((_machine_ms() - machine_ms) / count)
    over = _over_none(series)
    rows = {
        **series,
        **{f"over none: {name}": value for name, value in over.items()},
        **{f"afterwards, until all is torn down: {name}": value for name, value in afterwards.items()},
        **{f"processor time of each over none: {name}": value for name, value in _over_none(processors).items()},
        **{f"  of it the daemon's: {name}": value for name, value in daemons.items()},
    }
    print(render_table(f"{title} ({rounds} rounds)", rows))
    _print_ratios(over)


def _over_none(series: Mapping[str, Series]) -> dict[str, Series]:
    return {name: value.minus(series[NONE]) for name, value in series.items() if name != NONE}


def _print_ratios(over: Mapping[str, Series]) -> None:
    for name in (*OURS, *BARE):
        builtin = USER_BRIDGE_WITH_PORT if "--publish" in NETWORKS[name] else USER_BRIDGE
        cost = over[builtin].median_ms
        if cost <= 0:  # with few rounds on a busy machine
            print(f"a {builtin} took no longer than none: too few rounds to compare {name} with it", flush=True)
        else:
            ratio = over[name].median_ms / cost
            print(f"over none, {name} costs {ratio:.2f} times what a {builtin} does", flush=True)
    print()


def _shuffled(number: int) -> list[str]:
    """Return the measurements in an order of each round's own: what one leaves to the kernel slows down the next."""
    names = list(NETWORKS)
    random.Random(number).shuffle(names)  # noqa: S311 - no secret
    return names


def _time_ms(lab: Lab, *argv: str) -> float:
    started = time.perf_counter()
    lab.run(*argv)
    return (time.perf_counter() - started) * 1000


def _log_length(lab: Lab) -> int:
    assert lab.daemon is not None
    return len(lab.daemon.log())


def _wait_torn_down(lab: Lab, start: int, count: int) -> float:
    """Wait until `count` endpoints are torn down after position `start` of the log; return the milliseconds."""
    started = time.perf_counter()
    wait_until(lambda: _events(lab, start).count("endpoint.torn_down") == count, "the end of the endpoints", 30)
    return (time.perf_counter() - started) * 1000


def _wait_bare(lab: Lab) -> None:
    """Wait until the bare driver has no endpoint."""
    wait_until(lambda: not any(lab.path(bare_driver.PATH).iterdir()), "the end of the bare driver's endpoints", 30)


def _machine_ms() -> float:
    """Return the processor time that all processes of the machine, which should be idle, have had."""
    user, nice, system, _, _, interrupts, soft_interrupts, *_ = map(
        int, Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    )
    return (user + nice + system + interrupts + soft_interrupts) * TICK_MS


def _daemon_ms(lab: Lab) -> float:
    """Return the processor time that the daemon has had, without its plugins."""
    assert lab.daemon is not None
    after_name = Path(f"/proc/{lab.daemon.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) * TICK_MS  # utime and stime, proc(5)


def _read_spent(lab: Lab) -> Spent:
    """Read the times since the daemon's start."""
    metrics = lab.run("curl", "--silent", "--fail", "--unix-socket", ADMIN_SOCKET, "http://localhost/metrics").stdout
    took_ms: defaultdict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == OF_CALLS:
                took_ms["calls"] += sample.value * 1000
            elif sample.name == OF_PLUGINS:
                took_ms[sample.labels["verb"]] += sample.value * 1000
    return Spent(add=took_ms["ADD"], delete=took_ms["DEL"], calls=took_ms["calls"])


def _events(lab: Lab, start: int) -> list[JsonValue]:
    assert lab.daemon is not None
    written, _, _ = lab.daemon.log()[start:].rpartition("\n")
    return [json.loads(line)["event"] for line in written.splitlines()]


if __name__ == "__main__":
    main(sys.argv[1:])
