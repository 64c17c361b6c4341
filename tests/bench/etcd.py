# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What ADD and DEL of `cni-ipam-etcd` cost beside those of `host-local`, with an etcd of one member on this host."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.bench.statistics import Series, render_table
from tests.lab.fetch_etcd import FetchError, fetch_etcd

__all__ = ["measure_etcd"]

_PLUGIN = Path(sys.executable).with_name("cni-ipam-etcd")
_NAMES = ("start of Python", "host-local: ADD", "host-local: DEL", "cni-ipam-etcd: ADD", "cni-ipam-etcd: DEL")


def measure_etcd(rounds: int, *, bare: Callable[[str, Path], tuple[float, float]]) -> None:
    """Measure and print the table, or why there is none.

    Args:
        rounds: The number of addresses.
        bare: Executes ADD and DEL of a plugin with a configuration; returns the milliseconds of each.
    """
    try:
        server = fetch_etcd()
    except FetchError as exc:
        print(f"cni-ipam-etcd is not measured: etcd cannot be had: {exc}")
        return
    files = {name: Path(f"/run/bench-{name}.json") for name in ("host-local", "cni-ipam-etcd")}
    for name, file in files.items():
        ipam = {"type": name, "subnet": "10.94.0.0/16", "etcd": {"endpoints": ["http://127.0.0.1:2379"]}}
        file.write_text(json.dumps({"cniVersion": "1.0.0", "name": f"bench-{name}", "ipam": ipam}))
    series = {name: Series() for name in _NAMES}
    command = [str(server), "--log-level=error", "--data-dir"]
    with tempfile.TemporaryDirectory() as data, subprocess.Popen([*command, data]) as etcd:
        time.sleep(3)  # until it has elected itself; the first requests are not measured
        for number in range(rounds + 1):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", "pass"], check=True)
            start_ms = (time.perf_counter() - started) * 1000
            values = (start_ms, *bare("host-local", files["host-local"]), *bare(str(_PLUGIN), files["cni-ipam-etcd"]))
            for name, value in zip(_NAMES, values, strict=True) if number else ():
                series[name].add(value)
        etcd.kill()
    rows = {**series, "ADD beyond the start of Python": series[_NAMES[3]].minus(series[_NAMES[0]])}
    print(render_table(f"an address from etcd ({rounds} rounds)", rows))
