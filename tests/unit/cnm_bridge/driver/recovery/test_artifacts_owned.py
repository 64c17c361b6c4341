# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The rules and reservations of one endpoint are found among all of the host's, which are read once."""

from dataclasses import replace
from pathlib import Path
from typing import Final

from cni_bridge_state import EndpointRecord
from cnm_bridge.core.saved_rules import parse_saved_rules
from cnm_bridge.driver.recovery.artifacts import HostArtifacts, HostRule, chain_names
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


async def test_entries_belong_to_all(tmp_path: Path) -> None:
    """The rules that lead to the chain of all published ports are found with each endpoint, apart from its own."""
    entry = "-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT"
    docker = "-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER"
    found = await HostArtifacts([], saved(entry, docker), 0.0).find(record(tmp_path))
    assert (found.rules, found.entries) == ((), (f"iptables -t nat {entry}",))


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
