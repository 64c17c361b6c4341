# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the command offers if an attachment cannot be deleted, and `gc`, alone and beside other processes."""

import time
from pathlib import Path

from cni_bridge_spec import JsonObject
from extras.cni_tool.tests.unit.command_host import ID, LIMIT_S, NETNS, RESULT, Host

LOCKED: JsonObject = {"error": {"code": 999, "msg": "xtables lock is held"}}


def states(host: Host, *arguments: str) -> dict[str, object]:
    """Return the state of each listed attachment, by interface."""
    rows = [line.split("  ") for line in host.do("attachments", *arguments).splitlines() if line != "no attachment"]
    return {row[-4].rpartition("/")[2]: row[-1] for row in rows}


def test_attachments_are_listed_with_their_state(host: Host) -> None:
    """All attachments are listed, or those of one network."""
    assert host.do("attachments") == "no attachment\n"
    host.configure("20-red.conflist", {"type": "first"}, {"type": "second"}, name="red")
    host.plugins.install("second", ADD=LOCKED, DEL=LOCKED)
    host.do("add", "blue", NETNS)
    host.fail("add", "red", NETNS, CNI_IFNAME="eth1")
    host.do("add", "blue", NETNS, CNI_IFNAME="eth2")
    host.plugins.install("first", ADD={"result": RESULT}, DEL=LOCKED)
    host.fail("del", "blue", NETNS, CNI_IFNAME="eth2")
    assert host.do("attachments", "blue").splitlines() == [
        f"blue             {ID}/eth0  {NETNS}  10.1.2.3/24  added",
        f"blue             {ID}/eth2  {NETNS}  10.1.2.3/24  del not completed",
    ]
    assert states(host, "blue") == {"eth0": "added", "eth2": "del not completed"}
    assert states(host)["eth1"] == "del not completed"


def test_an_interrupted_add_is_listed(host: Host, tmp_path: Path) -> None:
    """Its state is "add not completed", and DEL removes it."""
    netns = str(tmp_path / "netns")  # unique to this test
    host.plugins.install("first", ADD={"sleep_s": 600})
    with host.running("add", "blue", netns) as adding:
        host.wait_for("ADD")
        adding.kill()
    assert states(host) == {"eth0": "add not completed"}
    host.do("del", "blue", netns)
    assert states(host) == {}


def test_del_force_removes_an_attachment_whose_plugin_fails(host: Host) -> None:
    """All plugins run, and the error is printed as a warning."""
    host.configure("10-blue.conflist", {"type": "first"}, {"type": "second"})
    host.plugins.install("second", ADD={"passthrough": True}, DEL=LOCKED)
    host.do("add", "blue", NETNS)
    _, text = host.fail("del", "blue", NETNS)
    assert "the attachment is still cached: repeat the del, or forget it with del --force" in text
    assert states(host) == {"eth0": "del not completed"}
    done = host.run("del", "blue", NETNS, "--force")
    assert done.returncode == 0
    assert "xtables lock is held" in done.stderr
    assert host.commands[-1].plugin == "first"
    assert states(host) == {}


def test_del_force_needs_neither_plugins_nor_configuration(host: Host) -> None:
    """The attachment is removed from the cache, and the missing plugin is printed as a warning."""
    host.do("add", "blue", NETNS)
    for path in (host.plugins.directory / "first", host.configurations / "10-blue.conflist"):
        path.unlink()
    error, _ = host.fail("del", "blue", NETNS)
    assert 'failed to find plugin "first"' in str(error["msg"])
    done = host.run("del", "blue", NETNS, "--force")
    assert done.returncode == 0
    assert 'failed to find plugin "first"' in done.stderr
    assert states(host) == {}


def test_del_of_a_damaged_record_without_configuration(host: Host) -> None:
    """The error names the file, and says what to do with it."""
    (host.configurations / "10-blue.conflist").unlink()
    record = host.cache / "results" / f"blue-{ID}-eth0"
    record.parent.mkdir(parents=True)
    record.write_text("garbage")
    _, text = host.fail("del", "blue", NETNS)
    assert str(record) in text
    assert "remove that file if nothing needs it any more" in text
    assert record.exists()


def test_del_without_attachment_or_configuration_names_both(host: Host) -> None:
    """The error has the container ID that was looked up, and the command that lists the cached ones."""
    (host.configurations / "10-blue.conflist").unlink()
    _, text = host.fail("del", "blue", NETNS)
    assert 'no net configuration with name "blue"' in text
    assert f"no attachment of {ID}/eth0 to it is cached: see cni-invoker attachments" in text
    _, text = host.fail("del", "blue", NETNS, "--container-id", "pod1")
    assert "no attachment of pod1/eth0 to it" in text


def test_an_attachment_of_another_runtime_is_deleted_by_its_container_id(host: Host) -> None:
    """That container ID is not derived from the netns path, so --container-id is needed."""
    host.do("add", "blue", NETNS)
    record = host.cache / "results" / f"blue-{ID}-eth0"
    record.with_name("blue-pod1-eth0").write_text(record.read_text().replace(ID, "pod1"))
    record.unlink()
    host.do("del", "blue", NETNS, "--container-id", "pod1")
    assert host.commands[-1].environment["CNI_CONTAINERID"] == "pod1"
    assert states(host) == {}


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
