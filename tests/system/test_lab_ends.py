# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The lab itself: the machine is not changed, and nothing of a lab is left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.lab import Engine, Lab, wait_until

REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a lab, which makes namespaces and mounts, needs root")

# A process that holds a lab with a container in it, forks once, prints the process IDs, and sleeps.
HOLDER = """
import json, os, sys, time
from tests.lab import Engine, Lab, find_engine
with Lab(engine=find_engine(sys.argv[1])) as lab:
    lab.docker("run", "--detach", "busybox", "sleep", "600")
    child = os.fork()
    if child:
        print(json.dumps({"name": lab.namespaces.name, "init": lab.namespaces.init_pid, "child": child}), flush=True)
    time.sleep(600)
"""


def machine() -> dict[str, str]:
    """Return what a lab might change: links, addresses, routes, rules, mounts, directories, sysctls."""
    commands = (
        *("ip addr", "ip route show table all", "ip -6 route show table all", "ip rule"),
        *("iptables-save", "ip6tables-save", "hostname"),
        "cat /proc/self/mountinfo /proc/sys/kernel/keys/root_maxkeys",
        "ls -A /etc /etc/cni /etc/docker /opt /var/lib /var/lib/cni /var/lib/docker /run /run/docker /run/netns",
    )
    volatile = re.compile(r"\d+sec|\[\d+:\d+\]|^#.*$", re.MULTILINE)  # lifetimes, counters, dates
    states = {}
    for command in commands:
        # `ls` fails for what does not exist; that must not change either
        output = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        states[command] = volatile.sub("", output.stdout + output.stderr)
    return states


def control_groups(name: str) -> list[Path]:
    """Return the control groups of a lab, in each hierarchy."""
    return [*Path("/sys/fs/cgroup").glob(name), *Path("/sys/fs/cgroup").glob(f"*/{name}")]


def processes_in(namespaces: set[str]) -> list[int]:
    """Return the processes in any of these namespaces (`net:[4026531840]`)."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            links = {str((entry / "ns" / kind).readlink()) for kind in ("net", "mnt", "pid", "uts", "ipc")}
        except OSError:  # ended; or a kernel thread or a zombie, which have no namespaces
            continue
        if links & namespaces:
            found.append(int(entry.name))
    return found


def traces_of(name: str, namespaces: set[str]) -> list[str]:
    """Return everything on the machine that belongs to a lab."""
    keepers = [path for path in Path("/proc").glob("[0-9]*") if name in read_quietly(path / "cmdline")]
    mounted = [line for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines() if name in line]
    files = [path for top in (tempfile.gettempdir(), "/run", "/var/tmp") for path in Path(top).glob(f"*{name}*")]
    return [str(trace) for trace in (*processes_in(namespaces), *keepers, *mounted, *files, *control_groups(name))]


def read_quietly(path: Path) -> str:
    """Return the text of a file of /proc; an empty one if the process has just ended."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def namespaces_of(pid: int) -> set[str]:
    """Return the namespaces of a process, none of which may be ours."""
    kinds = ("net", "mnt", "pid", "uts", "ipc")
    ours = {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in kinds}
    theirs = {str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in kinds}
    assert not ours & theirs
    return theirs


def test_the_machine_is_not_changed(engine: Engine) -> None:
    """Links, routes, rules, mounts and directories of it are the same before, during and after a lab, a tidy host."""
    before = machine()
    with Lab(engine=engine) as lab:
        name, namespaces = lab.namespaces.name, namespaces_of(lab.namespaces.init_pid)
        assert "readable-by-others" not in lab.run("cni-bridge", "doctor", "--json", check=False).stdout
        lab.docker("network", "create", "--subnet", "10.8.0.0/24", "lan")
        lab.docker("run", "--detach", "--network", "lan", "--publish", "8080:80", "busybox", "sleep", "600")
        assert machine() == before
        assert control_groups(name)
        assert traces_of(name, namespaces)
    # the kernel has killed all processes, and some may need a moment to end
    wait_until(lambda: not traces_of(name, namespaces), "the end of the lab")
    assert machine() == before


@pytest.mark.parametrize("victim", ["process group", "owner only"])
@pytest.mark.representatives("owner only")
def test_nothing_is_left_after_sigkill(victim: str, engine: Engine) -> None:
    """SIGKILL of the process that holds a lab removes all of it, even if a child of that process lives on."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, engine.name], cwd=REPOSITORY, stdout=subprocess.PIPE, start_new_session=True
    )
    with holder:
        assert holder.stdout is not None
        found = json.loads(holder.stdout.readline())
        name, namespaces = found["name"], namespaces_of(found["init"])
        assert len(processes_in(namespaces)) >= 4  # init, dockerd, containerd, a shim; the container has its own
        assert control_groups(name)
        if victim == "process group":
            os.killpg(holder.pid, signal.SIGKILL)
        else:
            holder.kill()
        try:
            wait_until(lambda: not traces_of(name, namespaces), "the end of the lab")
        finally:
            if victim == "owner only":
                os.kill(found["child"], signal.SIGKILL)
