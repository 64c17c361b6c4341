# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What an execution of the plugin `cnm` takes, with the driver of its tests, and how much of it is that driver's work.

Another container keeps the network, so that ADD does not create it. *Bare* is an interpreter that ends at once.
"""

import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Final

from tests.bench.statistics import Series, render_table
from tests.plugins.remote_driver import Body, RemoteDriver

__all__ = ["measure_cnm"]

CNM: Final = Path(sys.executable).with_name("cnm")
NAMES: Final = ("ADD", "  the driver's part of ADD", "DEL", "  the driver's part of DEL")
CONFIGURATION: Final = {"cniVersion": "1.0.0", "name": "bench-cnm", "type": "cnm", "driver": "bench"}


class _Driver(RemoteDriver):
    """The driver, which measures how long it works."""

    work_ms = 0.0

    def answer(self, method: str, body: Body) -> Body | None:
        started = time.perf_counter()
        try:
            return super().answer(method, body)
        finally:
            self.work_ms += (time.perf_counter() - started) * 1000


def measure_cnm(rounds: int) -> None:
    """Measure ADD and DEL, and print the table."""
    series = {key: Series() for key in ("an interpreter that ends at once", *NAMES)}
    driver = _Driver(Path("/run/docker/plugins/bench.sock"))
    with driver.running():
        _attach("keeper", driver)
        for _ in range(rounds):
            values = (_timed(sys.executable, "-c", "pass"), *_attach(uuid.uuid4().hex, driver, is_temporary=True))
            for one, value in zip(series.values(), values, strict=True):
                one.add(value)
        _run("DEL", "keeper")
    print(f"{render_table(f'the plugin cnm ({rounds} rounds)', series)}\n")


def _attach(container_id: str, driver: _Driver, *, is_temporary: bool = False) -> list[float]:
    """Attach a container in a new namespace, and detach it if it is temporary; return the milliseconds of `NAMES`."""
    subprocess.run(("ip", "netns", "add", container_id), check=True)
    found = []
    for verb in ("ADD", "DEL") if is_temporary else ("ADD",):
        driver.work_ms = 0.0
        found += [_run(verb, container_id), driver.work_ms]
    if is_temporary:
        subprocess.run(("ip", "netns", "delete", container_id), check=True)
    return found


def _run(verb: str, container_id: str) -> float:
    environment = {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": container_id,
        "CNI_NETNS": f"/run/netns/{container_id}",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/usr/lib/cni",
    }
    return _timed(str(CNM), environment=environment, stdin=json.dumps(CONFIGURATION))


def _timed(*command: str, environment: dict[str, str] | None = None, stdin: str = "") -> float:
    """Return how long a command takes, in milliseconds."""
    env, given = os.environ | (environment or {}), stdin.encode()
    started = time.perf_counter()
    subprocess.run(command, env=env, input=given, stdout=subprocess.PIPE, check=True)
    return (time.perf_counter() - started) * 1000
