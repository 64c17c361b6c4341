# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Entries are written in order, or dropped and counted; the writer never waits."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cnm_bridge.system.log import LogWriter

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
