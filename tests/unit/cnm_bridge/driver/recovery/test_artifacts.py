# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The rules, reservations and links of endpoints are found among all of the host's."""

import asyncio
import fcntl
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from cni_bridge_state import EndpointRecord
from cnm_bridge.core.saved_rules import parse_saved_rules
from cnm_bridge.driver.recovery.artifacts import (
    HostArtifacts,
    HostRule,
    PluginArtifact,
    Reservations,
    chain_names,
    find_reservations,
    owned_rules,
    read_rules,
    remove_unwritten,
)
from tests.records import endpoint

ID: Final = "77ad" * 16
OTHER: Final = "88be" * 16
(CHAIN, *_) = sorted(chain_names("lan", ID))


def record(directory: Path, attachment_id: str = ID, *addresses: str) -> EndpointRecord:
    """Return the record of an endpoint whose reservations are below a directory."""
    ipam = {"type": "host-local", "dataDir": str(directory)}
    return replace(endpoint(attachment_id, ipam=ipam), addresses=addresses)


def saved(*rules: str) -> list[HostRule]:
    """Return what iptables-save would print."""
    parsed = parse_saved_rules(["*nat", *rules, "COMMIT"])
    return [HostRule(command="iptables", saved=one) for one in parsed.rules]


async def test_rules_are_found_by_comment_chain_and_address(tmp_path: Path) -> None:
    """A rule belongs to an endpoint by its ID in the comment, by its chain, or by its address in a firewall chain."""
    own = (
        f'-A POSTROUTING -s 10.1.2.3/32 -m comment --comment "name: \\"lan\\" id: \\"{ID}\\"" -j {CHAIN}',
        f"-A {CHAIN} -j MASQUERADE",
        "-A CNI-FORWARD -d 10.1.2.3/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
        "-A CNI-FORWARD -s 10.1.2.3/32 -j ACCEPT",
    )
    others = (
        f'-A POSTROUTING -s 10.1.2.4/32 -m comment --comment "name: \\"lan\\" id: \\"{OTHER}\\"" -j CNI-0a',
        "-A CNI-FORWARD -s 10.1.2.30/32 -j ACCEPT",
        "-A CNI-FORWARD -s 10.1.2.0/24 -j ACCEPT",
        "-A FORWARD -s 10.1.2.3/32 -j ACCEPT",
    )
    host = HostArtifacts([], saved(*others, *own), 0.0)
    found = await host.find(record(tmp_path, ID, "10.1.2.3"))
    assert sorted(found.rules) == sorted(f"iptables -t nat {rule}" for rule in own)


async def test_reservations_are_found_by_container(tmp_path: Path) -> None:
    """Also in the directory that the endpoint's list chooses; those of another container are not its own."""
    (tmp_path / "lan").mkdir()
    for address, owner in (("10.1.2.3", ID), ("10.1.2.4", OTHER), ("10.1.2.5", ID)):
        (tmp_path / "lan" / address).write_text(f"{owner}\neth0")
    found = await HostArtifacts([], [], 0.0).find(record(tmp_path))
    assert found.reservations == (str(tmp_path / "lan" / "10.1.2.3"), str(tmp_path / "lan" / "10.1.2.5"))


def test_a_changed_endpoint_is_not_current(tmp_path: Path) -> None:
    """Plugins may have made rules for it after the rules were read."""
    before = record(tmp_path)
    host = HostArtifacts([before], [], 0.0)
    assert host.is_current(before)
    assert not host.is_current(replace(before, internal=True))
    assert not host.is_current(record(tmp_path, OTHER))


@pytest.fixture(name="network")
def make_network(tmp_path: Path) -> Path:
    """The directory of the network `lan`, with the lock."""
    network = tmp_path / "lan"
    network.mkdir()
    (network / "lock").touch()
    return network


def test_reservations_are_found(tmp_path: Path, network: Path) -> None:
    """Each file is an address; lock, last address and unknown files are skipped, and an empty file has no owner."""
    (network / "10.1.2.3").write_text("77ad\r\neth0")
    (network / "fd00::3").write_text("77ad\r\neth0")
    (network / "10.1.2.4").write_text("88be")
    (network / "10.1.2.5").write_text("")
    (network / "10.1.2.6").write_bytes(b"\xff\xfe")
    (network / "last_reserved_ip.0").write_text("")
    assert find_reservations(tmp_path, "lan") == Reservations(
        owned=tuple(
            PluginArtifact(network="lan", container_id=container, what=str(network / address), address=address)
            for address, container in (("10.1.2.3", "77ad"), ("10.1.2.4", "88be"), ("fd00::3", "77ad"))
        ),
        unwritten=(network / "10.1.2.5",),
    )


def test_empty_reservations_are_removed(network: Path) -> None:
    """Their host-local was killed. A file that another host-local has written or removed meanwhile is skipped."""
    empty, written, removed = network / "10.1.2.3", network / "10.1.2.4", network / "10.1.2.5"
    empty.touch()
    written.write_text("77ad\r\neth0")
    assert [remove_unwritten(file) for file in (empty, written, removed)] == [True, False, False]
    assert sorted(file.name for file in network.iterdir()) == ["10.1.2.4", "lock"]


def test_an_empty_reservation_is_kept_while_a_plugin_holds_the_lock(network: Path) -> None:
    """That host-local may be about to write it."""
    file = network / "10.1.2.3"
    file.touch()
    with (network / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not remove_unwritten(file)
    assert remove_unwritten(file)


SAVED = r"""# Generated by iptables-save v1.8.9 (nf_tables)
*nat
:PREROUTING ACCEPT [0:0]
:CNI-3f0c - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -s 10.80.1.2/32 -m comment --comment "name: \"lan\" id: \"77ad\"" -j CNI-3f0c
-A CNI-3f0c ! -d 224.0.0.0/4 -m comment --comment "name: \"lan\" id: \"77ad\"" -j MASQUERADE
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"blue\" id: \"88be\"" -m multiport --dports 80 -j CNI-DN-1
-A POSTROUTING -s 10.80.9.9/32 -m comment --comment "name: lan id: 77ad" -j CNI-other
COMMIT
"""


def test_what_iptables_save_prints() -> None:
    """Rules for masquerading and ports name network and container; a chain that is not built in has no policy."""
    found = parse_saved_rules(SAVED.splitlines())
    assert found.policies == {"PREROUTING": "ACCEPT", "CNI-3f0c": "-"}
    owned = list(owned_rules(HostRule(command="iptables", saved=one) for one in found.rules))
    assert [(rule.network, rule.container_id) for rule in owned] == [("lan", "77ad"), ("lan", "77ad"), ("blue", "88be")]
    rule = (
        r'iptables -t nat -A POSTROUTING -s 10.80.1.2/32 -m comment --comment "name: \"lan\" id: \"77ad\"" -j CNI-3f0c'
    )
    assert owned[0] == PluginArtifact(network="lan", container_id="77ad", what=rule)


async def test_unreadable_tables_have_no_rules() -> None:
    """A missing or failing iptables-save is no error."""
    assert await read_rules(["false", "/nonexistent"]) == ()


def print_after(directory: Path, command: str, name: str = "iptables-save") -> str:
    """Make an executable that writes its process ID, and runs `command`."""
    path = directory / name
    path.write_text(f"#!/bin/sh\necho $$ > {directory}/pid\n{command}\n")
    path.chmod(0o755)
    return str(path)


def has_ended(directory: Path) -> bool:
    """Return whether that process has been reaped."""
    return not Path(f"/proc/{int((directory / 'pid').read_text())}").exists()


async def test_a_hanging_iptables_save_is_killed(tmp_path: Path) -> None:
    """After the time limit there are no rules, and the process has been reaped."""
    assert await read_rules([print_after(tmp_path, "exec sleep 1000")], limit_s=0.5) == ()
    assert has_ended(tmp_path)


async def test_cancellation_kills_iptables_save(tmp_path: Path) -> None:
    """A daemon that stops leaves no process."""
    async with asyncio.TaskGroup() as tasks:
        finding = tasks.create_task(read_rules([print_after(tmp_path, "exec sleep 1000")], limit_s=1000))
        async with asyncio.timeout(20):
            while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        finding.cancel()
    assert has_ended(tmp_path)


async def test_a_comment_that_is_not_utf8_hides_no_rule(tmp_path: Path) -> None:
    """Another program's rule may contain any bytes."""
    theirs = '-A INPUT -m comment --comment "caf\\351" -j ACCEPT\\n'
    ours = r'-A POSTROUTING -m comment --comment "name: \"lan\" id: \"77ad\"" -j CNI-3f0c'
    *_, rule = await read_rules([print_after(tmp_path, f"printf '{theirs}'; printf '%s\\n' '{ours}'")])
    assert rule.saved.owner == ("lan", "77ad")


async def test_rules_have_the_command_of_their_family(tmp_path: Path) -> None:
    """An IPv6 rule is removed by ip6tables."""
    ours = r'-A POSTROUTING -m comment --comment "name: \"lan\" id: \"77ad\"" -j CNI-3f0c'
    saved = f"printf '%s\\n' '*nat' '{ours}'"
    found = await read_rules([print_after(tmp_path, saved, name) for name in ("iptables-save", "ip6tables-save")])
    assert [rule.what for rule in found] == [f"iptables -t nat {ours}", f"ip6tables -t nat {ours}"]


def test_chain_names_are_those_of_the_plugins() -> None:
    """They are as measured with plugins 1.1.1 and 1.9.1."""
    assert "CNI-e931cd072dedd5f9aad67ace" in chain_names("crash", "00000000003".ljust(64, "e"))
    published = "8b8c5d0597d1e7ffd97bf9768c2e77e8cff10fafbc56710b5f8905f752a61e4d"
    assert "CNI-DN-62ee68f9d29d8c692bdb5" in chain_names("lan", published)
