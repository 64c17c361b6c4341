# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The records of attachments: found by address, in force until DEL, and never half of one."""

import fcntl
import os
import subprocess
import sys
from dataclasses import replace
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from cni_egress.policy import Policy
from cni_egress.records import BadRecord, Record, RecordGone, Records

FOUR, SIX = ip_address("10.66.0.5"), ip_address("fd66::5")


def record(container_id: str = "c1", *addresses: str, allow: str = "api.example.com") -> Record:
    """A record of a container on a bridge."""
    return Record(
        network="agents",
        container_id=container_id,
        ifname="eth0",
        link="agents0",
        port=f"veth-{container_id}",
        mac="c2:11:22:33:44:55",
        addresses=tuple(map(ip_address, addresses or ("10.66.0.5", "fd66::5"))),
        subnets=(ip_network("10.66.0.0/24"), ip_network("fd66::/64")),
        policy=Policy.parse([allow]),
    )


@pytest.fixture(name="records")
def make_records(tmp_path: Path) -> Records:
    """An empty directory of records."""
    return Records(tmp_path / "cni-egress")


def test_found_by_each_address(records: Records) -> None:
    """A record is found by its addresses and by its attachment, and only by these."""
    assert records.by_source(FOUR) is None
    assert records.all() == ()
    records.put(record())
    assert records.by_source(FOUR) == records.by_source(SIX) == records.find("c1", "eth0") == record()
    assert records.all() == (record(),)
    assert records.by_source(ip_address("10.66.0.6")) is None
    assert records.find("c1", "eth1") is None


def test_another_process_sees_each_change(records: Records) -> None:
    """What has been read is used until its file changes: a reader sees a new policy, and the end, at once."""
    reader = Records(records.directory)
    records.put(record())
    first = reader.by_source(FOUR)
    assert first is reader.by_source(FOUR)
    records.put(record(allow="other.example.com"))
    changed = reader.by_source(FOUR)
    assert changed is not None
    assert changed.policy.ports_of("other.example.com")
    records.forget_sources(record())
    assert reader.by_source(FOUR) is None
    assert records.all() != ()
    records.remove(record())
    records.remove(record())
    assert records.all() == ()


def test_containers_of_a_network_share_a_policy(records: Records) -> None:
    """A thousand containers with fifty names each have one policy in memory."""
    for number in range(3):
        records.put(record(f"c{number}", f"10.66.0.{number}"))
    assert len({id(one.policy) for one in records.all()}) == 1


def test_an_address_that_has_a_new_owner(records: Records) -> None:
    """The record of the earlier owner does not take the address away when it goes."""
    records.put(record("old", "10.66.0.5"))
    records.put(record("new", "10.66.0.5"))
    records.forget_sources(record("old", "10.66.0.5"))
    found = records.by_source(FOUR)
    assert found is not None
    assert found.container_id == "new"


def test_a_record_is_in_force_until_it_is_forgotten(records: Records) -> None:
    """A responder that still has the record of a deleted container can open nothing for its address."""
    records.put(record())
    held = records.by_source(FOUR)
    assert held is not None
    with records.held(held):
        pass
    records.forget_sources(held)
    with pytest.raises(RecordGone, match="is being deleted"), records.held(held):
        pass
    records.remove(held)
    with pytest.raises(RecordGone, match="eth0 of c1 on network agents has been deleted"), records.held(held):
        pass
    records.put(replace(record(), policy=Policy.parse(["other.example.com"])))
    with pytest.raises(RecordGone, match="has been changed"), records.held(held):
        pass


def test_a_deletion_waits_for_who_holds_the_record(records: Records) -> None:
    """Elements that are added meanwhile are there when DEL looks for them."""
    records.put(record())
    held = records.by_source(FOUR)
    assert held is not None
    code = (
        "import sys, pathlib; from cni_egress.records import Records; records = Records(pathlib.Path(sys.argv[1])); "
        "print('begun', flush=True); records.forget_sources(records.find('c1', 'eth0')); print('ended', flush=True)"
    )
    with records.held(held):
        other = subprocess.Popen([sys.executable, "-c", code, records.directory], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.3)
    assert other.communicate(timeout=10)[0] == "ended\n"


def test_a_deletion_that_waits_is_not_waited_for(records: Records) -> None:
    """A responder never blocks: a record whose deletion has begun is gone."""
    records.put(record())
    held = records.by_source(FOUR)
    assert held is not None
    with (records.directory / "attachments/c1@eth0.json").open("rb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        with pytest.raises(RecordGone), records.held(held):
            pass


def test_one_lock_for_all_processes(records: Records) -> None:
    """Who has the lock keeps others out."""
    with records.locked(), (records.directory / "lock").open("rb") as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_whether_a_responder_runs(records: Records) -> None:
    """It is known without a process ID, and a killed responder does not count."""
    assert not records.has_responder()
    with records.responding():
        assert records.has_responder()
        with pytest.raises(BlockingIOError), Records(records.directory).responding():
            pass
    assert not records.has_responder()


def test_a_damaged_record(records: Records) -> None:
    """It is an error that names the file, not an unguarded container."""
    records.put(record())
    path = records.directory / "attachments/c1@eth0.json"
    path.write_text('{"network": 7}', "utf-8")
    for read in (lambda: records.by_source(FOUR), records.all, lambda: records.find("c1", "eth0")):
        with pytest.raises(BadRecord, match=r"attachments/c1@eth0\.json cannot be read: policy is missing"):
            read()


def test_an_interrupted_write_leaves_no_record(records: Records) -> None:
    """A file is complete, or it is not there; what a killed process has left does not disturb the next one."""
    records.put(record())
    for name in ("attachments/c2@eth0.json.part", "sources/10.66.0.9.part"):
        (records.directory / name).write_bytes(b"{")
    os.sync()
    assert records.all() == (record(),)
    records.put(record("c2", "10.66.0.9"))
    assert records.by_source(ip_address("10.66.0.9")) == record("c2", "10.66.0.9")
