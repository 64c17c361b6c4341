# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What a user waits for: `docker run --rm busybox true`, whole, on our networks and on Docker's own, engine by engine.

`python -m tests.bench.containers`; each engine has a lab of its own. Each round does the same on every network, one
after the other, each time beginning with another one, so that all see the same machine. What a network costs is the
difference to `none` in the same round. Of ours, the daemon's log tells what the plugins took and what its calls took;
what remains is the engine's.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spec import JsonObject
from tests.bench.statistics import Series, render_table
from tests.lab import Engine, Lab, find_engine, find_plugins, known_engines, wait_until

__all__ = ["main"]

AT_ONCE: Final = 8
RUN: Final = ("docker", "run", "--rm", "--network")
COMMAND: Final = ("busybox", "true")
# Each `wait` gives the status of its process: one that fails ends the script.
SEVERAL: Final = """
pids=
for i in $(seq "$1"); do docker run --rm --network "$2" busybox true & pids="$pids $!"; done
for pid in $pids; do wait "$pid" || exit 1; done
"""
NONE: Final = "none"
USER_BRIDGE: Final = "user bridge"
OURS: Final = "ours: bridge, masquerade, firewall"
NETWORKS: Final = {
    NONE: "none",
    "default bridge": "bridge",
    USER_BRIDGE: "user",
    "ours: bridge, masquerade": "ours",
    OURS: "ours-firewall",
}
"""What is measured, and the Docker network that it is measured on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one container took on a network of ours, in milliseconds, by the daemon's log."""

    add: float
    delete: float
    calls: float


def main(arguments: Sequence[str]) -> None:
    """Measure on each engine."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.containers")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--engine", action="append", metavar="VERSION", help="may be repeated; default: all there are")
    parser.add_argument("--plugins", metavar="VERSION", help="other CNI plugins than the machine's")
    options = parser.parse_args(arguments)
    plugins = find_plugins(options.plugins) if options.plugins else None
    for engine in [find_engine(wanted) for wanted in options.engine or ()] or known_engines():
        with Lab(engine=engine, plugins=plugins) as lab:
            _make_networks(lab)
            _measure_one(lab, engine, options.rounds)
            _measure_several(lab, engine, max(options.rounds // 4, 1))


def _make_networks(lab: Lab) -> None:
    """Make the networks, and run one container on each: the first one makes bridges and shared chains."""
    lab.start_daemon("--log-level", "debug", "--log-format", "json")
    lab.docker("network", "create", "user")
    for number, (name, chained) in enumerate({"ours": [], "ours-firewall": [{"type": "firewall"}]}.items()):
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
        plugins: list[JsonObject] = [bridge, *chained]
        lab.write(f"/etc/cni/net.d/{name}.conflist", {"cniVersion": "1.0.0", "name": name, "plugins": [*plugins]})
        lab.docker("network", "create", "-d", "cni-bridge", "--ipam-driver", "null", "-o", f"cni.network={name}", name)
    for network in NETWORKS.values():
        lab.run(*RUN, network, *COMMAND)


def _measure_one(lab: Lab, engine: Engine, rounds: int) -> None:
    """Measure one container at a time, and where its time goes on our network."""
    series = {name: Series() for name in NETWORKS}
    adds, deletes, calls = Series(), Series(), Series()
    for number in range(rounds):
        for name in _rotated(number):
            log_length = _log_length(lab)
            series[name].add(_time_ms(lab, *RUN, NETWORKS[name], *COMMAND))
            if name == OURS:
                spent = _read_spent(lab, log_length)
                adds.add(spent.add)
                deletes.add(spent.delete)
                calls.add(spent.calls)
    over = {name: series[name].minus(series[NONE]) for name in NETWORKS if name != NONE}
    plugins = Series.sums((adds, deletes))
    rows = {
        **series,
        **{f"over none: {name}": value for name, value in over.items()},
        "  of it the plugins' ADDs": adds,
        "  of it the plugins' DELs": deletes,
        "  of it the rest of our calls": calls.minus(plugins),
        "  of it the engine's own work": over[OURS].minus(calls),
    }
    print(render_table(f"docker run --rm, engine {engine.name} ({rounds} rounds)", rows))
    _print_ratio(over)


def _measure_several(lab: Lab, engine: Engine, rounds: int) -> None:
    """Measure how long several containers take that are started at once."""
    series = {name: Series() for name in NETWORKS}
    for number in range(rounds):
        for name in _rotated(number):
            script = ("sh", "-c", SEVERAL, "several", str(AT_ONCE), NETWORKS[name])
            series[name].add(_time_ms(lab, *script))
    over = {name: series[name].minus(series[NONE]) for name in NETWORKS if name != NONE}
    rows = {**series, **{f"over none: {name}": value for name, value in over.items()}}
    print(render_table(f"{AT_ONCE} times docker run --rm at once, engine {engine.name} ({rounds} rounds)", rows))
    _print_ratio(over)


def _print_ratio(over: dict[str, Series]) -> None:
    ratio = over[OURS].median_ms / over[USER_BRIDGE].median_ms
    print(f"over none, ours costs {ratio:.2f} times what a user bridge does\n", flush=True)


def _rotated(number: int) -> list[str]:
    """Give what is to be measured, beginning with another one in each round."""
    names = list(NETWORKS)
    start = number % len(names)
    return names[start:] + names[:start]


def _time_ms(lab: Lab, *argv: str) -> float:
    started = time.perf_counter()
    lab.run(*argv)
    return (time.perf_counter() - started) * 1000


def _log_length(lab: Lab) -> int:
    assert lab.daemon is not None
    return len(lab.daemon.log())


def _read_spent(lab: Lab, start: int) -> Spent:
    """Read what the daemon has logged of the one container that ran since its log had this length."""
    daemon = lab.daemon
    assert daemon is not None

    def entries() -> list[JsonObject]:
        return [json.loads(line) for line in daemon.log()[start:].splitlines()]

    def is_over() -> bool:
        answered = (entry["rpc"] for entry in entries() if entry["event"] == "rpc.answered")
        return "NetworkDriver.DeleteEndpoint" in answered

    wait_until(is_over, "the end of the endpoint")
    took = {"ADD": 0.0, "DEL": 0.0, "calls": 0.0}
    for entry in entries():
        key = {"plugin.executed": entry.get("verb"), "rpc.answered": "calls"}.get(str(entry["event"]))
        if isinstance(key, str):
            duration_ms = entry["duration_ms"]
            assert isinstance(duration_ms, float | int)
            took[key] += duration_ms
    return Spent(add=took["ADD"], delete=took["DEL"], calls=took["calls"])


if __name__ == "__main__":
    main(sys.argv[1:])
