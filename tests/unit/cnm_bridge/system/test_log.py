# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Lines of the log carry their priority, are rare if events are frequent, and are written in order or dropped."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cnm_bridge.system.log import LogWriter, RateLimit

PROGRAM = """
import logging, os, sys
status = os.fstat(2)
if sys.argv[2] == "journal":
    os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
import structlog
from cnm_bridge.system.log import configure_logging, log_output
from cnm_bridge.core.settings import LogFormat, LogLevel
output = log_output()
configure_logging(LogLevel.DEBUG, LogFormat(sys.argv[1]), output.__enter__())
log = structlog.get_logger()
log.debug("some.event")
log.warning("other.event", error="first\\nsecond")
logging.getLogger("cni_invoker").error("plugin.not_observed")
password = "hunter" + "2"
try:
    raise ValueError("broken")
except ValueError:
    log.exception("rpc.bug")
output.__exit__(None, None, None)
"""


def log_lines(tmp_path: Path, fmt: str, destination: str) -> list[str]:
    """Return what a process logs to a file that is, or is not, the journal."""
    with (tmp_path / "log").open("w+") as file:
        subprocess.run([sys.executable, "-c", PROGRAM, fmt, destination], stderr=file, check=True)
        file.seek(0)
        return file.read().splitlines()


@pytest.mark.parametrize("fmt", ["json", "text"])
@pytest.mark.parametrize("destination", ["journal", "file"])
def test_lines_for_the_journal_have_their_priority(tmp_path: Path, fmt: str, destination: str) -> None:
    """As syslog numbers them, also each line of a traceback, of which it makes an entry each; a file gets none."""
    lines = log_lines(tmp_path, fmt, destination)
    assert any("broken" in line for line in lines)
    assert not any("hunter2" in line for line in lines)
    if destination == "journal":
        assert [line[:3] for line in lines] == ["<7>", "<4>", "<3>", *("<3>" for _ in lines[3:])]
        lines = [line[3:] for line in lines]
    assert not any(line.startswith("<") for line in lines)
    if fmt == "json":
        assert [json.loads(line)["event"] for line in lines][:2] == ["some.event", "other.event"]


@pytest.mark.parametrize("fmt", ["json", "text"])
def test_a_line_that_cannot_be_written_stops_nothing(fmt: str) -> None:
    """A call on a host whose disk with the log is full must not fail because of that."""
    with Path("/dev/full").open("w") as full:
        program = (sys.executable, "-c", f"{PROGRAM}\nos.write(1, b'done')", fmt, "full")
        done = subprocess.run(program, check=False, stdout=subprocess.PIPE, stderr=full)
    assert done.stdout == b"done"


def test_frequent_events_are_logged_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is, and the next ones are counted; a minute later the number is that of all since the last line."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    events = RateLimit()
    assert [events.count() for _ in range(3)] == [1, 0, 0]
    now += 61
    assert [events.count() for _ in range(2)] == [3, 0]


ENTRY = "x" * 999 + "\n"


@pytest.fixture(name="pipe")
def make_pipe() -> Iterator[tuple[int, int]]:
    """A pipe: where to read, where to write."""
    reading, writing = os.pipe()
    yield reading, writing
    os.close(writing)
    os.close(reading)


def test_entries_are_written_in_order(tmp_path: Path) -> None:
    """Those of several threads, each as a whole."""
    file = tmp_path / "log"
    descriptor = os.open(file, os.O_CREAT | os.O_WRONLY)
    writer = LogWriter(descriptor, lambda _: None)

    def write(name: str) -> None:
        for number in range(500):
            writer.write(f"{name} {number}\nsecond line\n")

    threads = [threading.Thread(target=write, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close(10)
    os.close(descriptor)
    lines = file.read_text().splitlines()
    assert lines[1::2] == ["second line"] * 1000
    assert [line for line in lines if line.startswith("a ")] == [f"a {number}" for number in range(500)]


def test_too_much_is_dropped_and_reported_once(pipe: tuple[int, int]) -> None:
    """The newest entries are; the report follows those that waited, when it is read again."""
    reports = []

    def report(count: int) -> None:
        reports.append(count)
        writer.write("reported\n")

    reading, writing = pipe
    writer = LogWriter(writing, report)
    for _ in range(2000):
        writer.write(ENTRY)
    dropped = writer.dropped
    assert 0 < dropped < 1000
    text = b""
    while not text.endswith(b"reported\n"):
        text += os.read(reading, 1 << 16)
    assert text == ENTRY.encode() * (2000 - dropped) + b"reported\n"
    writer.close(10)
    assert reports == [dropped]


def test_an_end_has_a_limit(pipe: tuple[int, int]) -> None:
    """The daemon ends although no one reads."""
    reading, writing = pipe
    writer = LogWriter(writing, lambda _: None)
    for _ in range(200):
        writer.write(ENTRY)
    writer.close(0.01)
    for _ in range(200):
        os.read(reading, len(ENTRY))
    writer.close(10)


def test_what_cannot_be_written_is_counted() -> None:
    """Such as on a full disk; no report is tried before something can be written."""
    reports: list[int] = []
    full = os.open("/dev/full", os.O_WRONLY)
    writer = LogWriter(full, reports.append)
    writer.write("first\n")
    writer.write("second\n")
    writer.close(10)
    assert writer.dropped == 2
    assert reports == []
    os.close(full)


def test_a_pipe_that_another_program_has_made_non_blocking(pipe: tuple[int, int]) -> None:
    """An entry is written as a whole: its thread waits for the reader."""
    reading, writing = pipe
    os.set_blocking(writing, False)
    writer = LogWriter(writing, lambda _: None)
    for _ in range(200):
        writer.write(ENTRY)
    text = b""
    while len(text) < 200 * len(ENTRY) and not writer.dropped:
        text += os.read(reading, len(ENTRY))
    writer.close(10)
    assert (writer.dropped, text) == (0, ENTRY.encode() * 200)
