# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Watching a daemon's process: its descriptors, its memory, its CPU time, and how long its event loop is blocked."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

QUIET_S: Final = 1.5


@dataclass(slots=True)
class Watch:
    """What a daemon's process has used.

    Attributes:
        pid: The process.
        report: The file that `watched_daemon` writes.
        descriptors: The most that were open at once, without sockets.
        rss_mb: The most memory.
    """

    pid: int
    report: Path
    descriptors: int = 0
    rss_mb: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    async def run(self) -> None:
        """Read the process every ten milliseconds."""
        while True:
            kinds = list(_descriptors(self.pid))
            self.descriptors = max(self.descriptors, sum(not kind.startswith("socket:") for kind in kinds))
            self.rss_mb = max(self.rss_mb, self.rss())
            await asyncio.sleep(0.01)

    def rss(self) -> float:
        """Return the resident memory now, in MB."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20

    def take_stall(self) -> str:
        """Return the longest stall so far, the longest without the wait for a processor, and the most CPU time."""
        text = self.report.read_text() if self.report.exists() else ""
        self.report.write_text("")
        stalls = [tuple(map(float, line.split()[1:])) for line in text.splitlines()] or [(0.0, 0.0, 0.0)]
        longest = max(wall for wall, _, _ in stalls)
        own = max(wall - queued for wall, _, queued in stalls)
        computing = max(cpu for _, cpu, _ in stalls)
        return f"{longest * 1000:.0f} ({own * 1000:.0f}, {computing * 1000:.0f})"

    async def wait_quiet(self, limit_s: float) -> bool:
        """Wait until the daemon is idle; return whether it was within the limit."""
        since, before = time.monotonic(), self.cpu_s()
        deadline = since + limit_s
        while time.monotonic() < deadline:
            await asyncio.sleep(0.25)
            now = self.cpu_s()
            if now - before > 0.1 * QUIET_S:
                since, before = time.monotonic(), now
            elif time.monotonic() - since > QUIET_S:
                return True
        return False

    def cpu_s(self) -> float:
        """Return the CPU time of its threads, in seconds."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _descriptors(pid: int) -> Iterator[str]:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            yield str(entry.readlink())


@asynccontextmanager
async def watched(watch: Watch) -> AsyncIterator[None]:
    """Watch a daemon for the length of the block."""
    watching = asyncio.create_task(watch.run())  # noqa: TID251
    try:
        yield
    finally:
        watching.cancel()
