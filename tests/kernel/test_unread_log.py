# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""No one reads the log: a full pipe, a hung journald. The daemon works as always."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from cni_bridge_spec import JsonObject, as_object, find_str
from tests.kernel.daemon_process import RunningDaemon, running_daemon
from tests.lab.unix_http import request
from tests.lab.waiting import wait_until

WAITING_BYTES: Final = 1 << 20
"""How much of its log the daemon keeps for a slow reader."""


@contextmanager
def unread_daemon(directory: Path) -> Iterator[tuple[RunningDaemon, int]]:
    """Yield a daemon whose log leads to a pipe, and the end at which it could be read."""
    reading, writing = os.pipe()
    try:
        with running_daemon(directory, stderr=writing) as daemon:
            os.close(writing)
            writing = -1
            yield daemon, reading
    finally:
        os.close(reading)
        if writing != -1:
            os.close(writing)


def fill_log(daemon: RunningDaemon) -> None:
    """Make the daemon log more than a pipe and its own memory hold: calls that it refuses, each in time."""
    unknown = "x" * 4000
    options: JsonObject = {"com.docker.network.generic": {"cni.network": unknown}}
    for _ in range((WAITING_BYTES + (256 << 10)) // len(unknown)):
        body: JsonObject = {"NetworkID": "0123456789ab", "Options": options, "IPv4Data": [], "IPv6Data": []}
        _, answer = request(daemon.socket, "POST", "/NetworkDriver.CreateNetwork", body, timeout_s=5)
        assert find_str(as_object(answer, "the answer"), "Err")


def dropped_lines(daemon: RunningDaemon) -> float:
    """Return the metric."""
    scrape = ("curl", "-sf", "-m", "5", "--unix-socket", str(daemon.admin), "http://localhost/metrics")
    text = subprocess.run(scrape, check=True, capture_output=True, text=True).stdout
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return families["cni_bridge_log_lines_dropped"].samples[0].value


def test_calls_and_commands_are_answered(tmp_path: Path) -> None:
    """Docker's calls, `status` and SIGTERM do not wait for the log; what was dropped is a metric."""
    with unread_daemon(tmp_path) as (daemon, _):
        fill_log(daemon)
        assert request(daemon.admin, "GET", "/v1/status", timeout_s=5)[0] == 200
        assert dropped_lines(daemon) > 0
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.process.wait(10) == 0


def test_the_log_goes_on(tmp_path: Path) -> None:
    """As soon as the log is read, the lines that waited come in order, then one with the number of those dropped."""
    with unread_daemon(tmp_path) as (daemon, reading):
        fill_log(daemon)
        dropped = dropped_lines(daemon)
        text = b""

        def has_report() -> bool:
            nonlocal text
            text += os.read(reading, 1 << 16)
            return b"log.lines_dropped" in text

        wait_until(has_report, "the report")
        lines = [json.loads(line) for line in text.splitlines()]
        times = [line["timestamp"] for line in lines]
        assert times == sorted(times)
        assert [(line["event"], line["count"]) for line in lines[-1:]] == [("log.lines_dropped", dropped)]
