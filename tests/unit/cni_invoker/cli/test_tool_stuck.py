# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What the command offers where an attachment cannot be deleted."""

from pathlib import Path

import pytest

from spec import JsonObject, get_objects, parse_json
from tests.unit.cni_invoker.tool_host import ID, NETNS, RESULT, Host

LOCKED: JsonObject = {"error": {"code": 999, "msg": "xtables lock is held"}}


def states(host: Host, *arguments: str) -> dict[str, object]:
    """Give the state of each attachment that is listed, by its interface."""
    printed = parse_json(host.do("attachments", *arguments, "--json").encode())
    assert isinstance(printed, dict)
    return {str(one["ifname"]): one["state"] for one in get_objects(printed, "attachments")}


def test_attachments_are_listed(host: Host) -> None:
    """All of them, or those to one network, with how far they came."""
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


def test_an_add_that_was_cut_off_is_listed(host: Host, tmp_path: Path) -> None:
    """It needs a DEL, like one that is marked so."""
    netns = str(tmp_path / "netns")  # a container that no other test has
    host.plugins.install("first", ADD={"sleep_s": 600})
    with host.running("add", "blue", netns) as adding:
        host.wait_for("ADD")
        adding.kill()
    assert states(host) == {"eth0": "add not completed"}
    host.do("del", "blue", netns)
    assert states(host) == {}


def test_a_stuck_attachment_is_forgotten_by_force(host: Host) -> None:
    """What fails is said; all plugins that can run have run."""
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


def test_force_without_plugins(host: Host) -> None:
    """Neither plugins nor their configuration are needed to forget."""
    host.do("add", "blue", NETNS)
    for path in (host.plugins.directory / "first", host.configurations / "10-blue.conflist"):
        path.unlink()
    error, _ = host.fail("del", "blue", NETNS)
    assert 'failed to find plugin "first"' in str(error["msg"])
    done = host.run("del", "blue", NETNS, "--force")
    assert done.returncode == 0
    assert 'failed to find plugin "first"' in done.stderr
    assert states(host) == {}


def test_an_unreadable_attachment_of_a_network_without_configuration(host: Host) -> None:
    """The error names the file, and what can be done about it."""
    (host.configurations / "10-blue.conflist").unlink()
    record = host.cache / "results" / f"blue-{ID}-eth0"
    record.parent.mkdir(parents=True)
    record.write_text("garbage")
    _, text = host.fail("del", "blue", NETNS)
    assert str(record) in text
    assert "the attachment is still cached: repeat the del, or forget it with del --force" in text
    assert record.exists()
    host.do("del", "blue", NETNS, "--force")
    assert not record.exists()


def test_neither_an_attachment_nor_a_configuration(host: Host) -> None:
    """Whoever has mistaken the container learns which one was looked for, and which ones there are."""
    (host.configurations / "10-blue.conflist").unlink()
    _, text = host.fail("del", "blue", NETNS)
    assert "no network configuration named 'blue'" in text
    assert f"no attachment of {ID}/eth0 to it is cached: see cni-invoker attachments" in text
    _, text = host.fail("del", "blue", NETNS, "--container-id", "pod1")
    assert "no attachment of pod1/eth0 to it" in text


@pytest.mark.parametrize("configured", [True, False])
def test_force_forgets_what_cannot_be_understood(host: Host, configured: bool) -> None:
    """A record of an unknown kind is left alone without it."""
    record = host.cache / "results" / f"blue-{ID}-eth0"
    record.parent.mkdir(parents=True)
    record.write_text('{"kind":"cniCacheV2"}')
    if not configured:
        (host.configurations / "10-blue.conflist").unlink()
    error, _ = host.fail("del", "blue", NETNS)
    assert "of the kind 'cniCacheV2'" in str(error["msg"])
    assert record.exists()
    done = host.run("del", "blue", NETNS, "--force")
    assert done.returncode == 0
    assert "of the kind 'cniCacheV2'" in done.stderr
    assert not record.exists()
    assert host.verbs == (["DEL"] if configured else [])


def test_an_attachment_of_another_runtime_is_deleted_by_its_id(host: Host) -> None:
    """Its ID is not made of the namespace's path."""
    host.do("add", "blue", NETNS)
    record = host.cache / "results" / f"blue-{ID}-eth0"
    record.with_name("blue-pod1-eth0").write_text(record.read_text().replace(ID, "pod1"))
    record.unlink()
    host.do("del", "blue", NETNS, "--container-id", "pod1")
    assert host.commands[-1].environment["CNI_CONTAINERID"] == "pod1"
    assert states(host) == {}
