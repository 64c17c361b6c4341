# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins that outlived their runtime are ended, and nobody else is."""

import subprocess
import sys

from cni_invoker import end_strays

SLEEP = [sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]


def start(container_id: str) -> "subprocess.Popen[bytes]":
    """Start what looks like a plugin at work for a container."""
    process = subprocess.Popen(SLEEP, env={"CNI_CONTAINERID": container_id}, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_only_those_of_the_container_are_ended() -> None:
    """A process is known by the container's whole ID in its environment."""
    with start("a1") as mine, start("a1b2") as longer, start("c3") as other:
        assert end_strays(["a1", "unknown"], limit_s=10) == (mine.pid,)
        assert mine.wait(timeout=10) == -9
        assert longer.poll() is None
        assert other.poll() is None
        assert end_strays([], limit_s=10) == ()
        longer.kill()
        other.kill()


def test_nothing_to_end() -> None:
    """Without such processes nothing happens."""
    assert end_strays(["nobody"], limit_s=10) == ()
