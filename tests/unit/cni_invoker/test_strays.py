# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Plugins that outlived their runtime are ended, and nobody else is."""

import subprocess
import sys
from pathlib import Path

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


def test_a_plugin_that_is_a_runtime_itself() -> None:
    """Who asks is not ended, though it has the ID in its own environment; however many files it has open."""
    program = (
        "import os, resource, subprocess, sys\n"
        "from cni_invoker import end_strays\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (2048, 2048))\n"
        "several = [os.open('/dev/null', os.O_RDONLY) for _ in range(1100)]\n"
        "with subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']) as child:\n"
        "    while b'CNI_CONTAINERID' not in open(f'/proc/{child.pid}/environ', 'rb').read():\n"
        "        pass\n"
        "    assert end_strays(['a1'], limit_s=10) == (child.pid,)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"CNI_CONTAINERID": "a1", "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_to_end() -> None:
    """Without such processes nothing happens."""
    assert end_strays(["nobody"], limit_s=10) == ()
