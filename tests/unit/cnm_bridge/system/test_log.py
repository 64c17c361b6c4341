# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Lines of the log carry their priority if they go to the journal; frequent ones are rare; each may fail."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cnm_bridge.system.log import RateLimit

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


def test_each_line_has_its_priority(tmp_path: Path) -> None:
    """As syslog numbers them; the rest is the same JSON as elsewhere."""
    lines = log_lines(tmp_path, "json", "journal")
    assert [line[:3] for line in lines] == ["<7>", "<4>", "<3>", "<3>"]
    assert [json.loads(line[3:])["event"] for line in lines][:2] == ["some.event", "other.event"]


@pytest.mark.parametrize("fmt", ["json", "text"])
def test_a_line_that_cannot_be_written_stops_nothing(fmt: str) -> None:
    """A call on a host whose disk with the log is full must not fail because of that."""
    with Path("/dev/full").open("w") as full:
        program = (sys.executable, "-c", f"{PROGRAM}\nos.write(1, b'done')", fmt, "full")
        done = subprocess.run(program, check=False, stdout=subprocess.PIPE, stderr=full)
    assert done.stdout == b"done"


@pytest.mark.parametrize("fmt", ["json", "text"])
def test_a_traceback_has_no_local_variables(tmp_path: Path, fmt: str) -> None:
    """They may be credentials of a configuration."""
    logged = "\n".join(log_lines(tmp_path, fmt, "terminal"))
    assert "broken" in logged
    assert "hunter2" not in logged


def test_each_line_of_a_traceback_too(tmp_path: Path) -> None:
    """The journal makes an entry of each line."""
    lines = log_lines(tmp_path, "text", "journal")
    assert len(lines) > 5
    assert {line[:3] for line in lines[2:]} == {"<3>"}


@pytest.mark.parametrize("fmt", ["json", "text"])
def test_a_file_gets_no_priority(tmp_path: Path, fmt: str) -> None:
    """It would be noise there."""
    assert not any(line.startswith("<") for line in log_lines(tmp_path, fmt, "file"))


def test_frequent_events_are_logged_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one is, and the next ones are counted; a minute later the number is that of all since the last line."""
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    events = RateLimit()
    assert [events.count() for _ in range(3)] == [1, 0, 0]
    now += 61
    assert [events.count() for _ in range(2)] == [3, 0]
