# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""`cni-invoker gc`, alone and beside other processes."""

import time
from pathlib import Path

from tests.unit.cni_invoker.tool_host import ID, LIMIT_S, NETNS, RESULT, Host


def test_gc_requires_valid_or_all(host: Host) -> None:
    """Without either, or with both, nothing is deleted, and the error lists the cached attachments."""
    host.do("add", "blue", NETNS)
    for arguments in (("gc", "blue", NETNS), ("gc", "blue", NETNS, "--all", "--valid", f"{ID}/eth0")):
        error, text = host.fail(*arguments)
        assert error["code"] == 4
        assert f"cached are: {ID}/eth0" in text
    assert host.verbs == ["ADD"]


def test_gc_keeps_valid_attachments(host: Host) -> None:
    """Attachments named by `--valid` are kept; with `--all` every attachment is deleted."""
    host.do("add", "blue", NETNS)
    host.do("add", "blue", NETNS, CNI_IFNAME="eth1")
    host.do("gc", "blue", "--valid", f"{ID}/eth1")
    assert host.verbs == ["ADD", "ADD", "DEL", "GC"]
    assert host.commands[2].environment["CNI_IFNAME"] == "eth0"
    assert host.commands[3].stdin["cni.dev/valid-attachments"] == [{"containerID": ID, "ifname": "eth1"}]
    host.do("gc", "blue", NETNS, "--all")
    assert host.verbs[4:] == ["DEL", "GC"]
    assert list((host.cache / "results").iterdir()) == []


def wait_for_descriptor(pid: int, file: Path) -> None:
    """Wait until a process has a file open."""
    deadline = time.monotonic() + LIMIT_S
    while not any(_target(link) == str(file) for link in Path(f"/proc/{pid}/fd").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _target(link: Path) -> str:
    try:
        return str(link.readlink())
    except FileNotFoundError:  # the process has closed it meanwhile
        return ""


def test_gc_waits_for_add(host: Host) -> None:
    """GC waits for an ADD in another process, whose attachment then is valid for the plugins."""
    go = host.cache.with_name("go")
    host.plugins.install("first", ADD={"result": RESULT, "wait_for": str(go)})
    with host.running("add", "blue", NETNS) as adding:
        host.wait_for("ADD")
        with host.running("gc", "blue", "--all") as collecting:
            wait_for_descriptor(collecting.pid, host.cache / "lock")
            assert host.verbs == ["ADD"]
            go.touch()
            assert [adding.wait(LIMIT_S), collecting.wait(LIMIT_S)] == [0, 0]
    assert host.verbs == ["ADD", "GC"]
    assert host.commands[1].stdin["cni.dev/valid-attachments"] == [{"containerID": ID, "ifname": "eth0"}]
