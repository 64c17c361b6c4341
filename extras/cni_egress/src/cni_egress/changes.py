# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Changes of the policy of a network, for the containers that are on it now.

Each container has its former policy or the new one, at any moment. If the command is killed, some have the former one;
the same command again completes it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cni_egress.enforcement import Enforcement
from cni_egress.policy import BadEntry, Policy, expand_sets
from cni_egress.records import Record, Records
from cni_egress.sets import read_set

__all__ = ["Changed", "NoResponder", "allow_entries", "deny_entries"]


class NoResponder(Exception):  # called after what is missing
    """A policy would have names, and nothing resolves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """What was changed.

    Attributes:
        attachments: How many attachments the network has.
        changed: Those that have another policy now.
        covered: What other entries still allow of what was denied, in words.
    """

    attachments: int
    changed: tuple[Record, ...]
    covered: tuple[str, ...] = ()


def allow_entries(records: Records, network: str, entries: Iterable[str]) -> Changed:
    """Add entries to the policies of a network's containers.

    Raises:
        BadEntry: An entry is invalid, or there are too many. Nothing was changed.
        NoResponder: An entry is a name, and the daemon does not run. Nothing was changed.
        BadRecord: A record cannot be read. Nothing was changed.
        NetlinkError: The kernel has refused.
        NftFailed: The same.
    """
    wanted = tuple(expand_sets(entries, read_set))
    with records.locked():
        found = _of_network(records, network)
        # Although the network may have no container, and permit public suffixes.
        if Policy.parse(wanted, public_suffixes=bool(found)).has_names and not records.has_responder():
            raise NoResponder("names need the daemon, which does not run: systemctl enable --now cni-egress")
        return _change(records, found, [_with_entries(one, (*one.policy.entries, *wanted)) for one in found])


def deny_entries(records: Records, network: str, entries: Iterable[str]) -> Changed:
    """Remove entries from the policies of a network's containers, and close what is no longer allowed.

    Raises:
        BadEntry: No container of the network has an entry. Nothing was changed.
        BadRecord: A record cannot be read. Nothing was changed.
        NetlinkError: The kernel has refused.
        NftFailed: The same.
    """
    unwanted = {entry.lower(): entry for entry in expand_sets(entries, read_set)}
    with records.locked():
        found = _of_network(records, network)
        present = {entry.lower() for one in found for entry in one.policy.entries}
        for key, entry in unwanted.items():
            if found and key not in present:
                raise BadEntry(f"{entry!r} is not in the allow-list of {network}, which has {_some(found)}")
        wanted = [
            _with_entries(one, [entry for entry in one.policy.entries if entry.lower() not in unwanted])
            for one in found
        ]
        changed = _change(records, found, wanted)
        covered = {text for one in changed.changed for text in _covered(one.policy, unwanted.values())}
        return replace(changed, covered=tuple(sorted(covered)))


def _of_network(records: Records, network: str) -> list[Record]:
    return [one for one in records.all() if one.network == network]


def _with_entries(record: Record, entries: Iterable[str]) -> Record:
    policy = record.policy
    return replace(record, policy=Policy.parse(entries, audit=policy.audit, public_suffixes=policy.public_suffixes))


def _change(records: Records, found: list[Record], wanted: list[Record]) -> Changed:
    changed = [new for former, new in zip(found, wanted, strict=True) if new.policy != former.policy]
    with Enforcement(records) as enforcement:
        for one in changed:
            enforcement.change_policy(one)
    return Changed(attachments=len(found), changed=tuple(changed))


def _covered(policy: Policy, denied: Iterable[str]) -> Iterator[str]:
    """Yield what a policy still allows of entries that it does not have any more."""
    for entry in denied:
        parsed = Policy.parse([entry], public_suffixes=True)
        names = [*parsed.names, *(f"any.{name}" for name in parsed.wildcards)]
        rules = [rule.network for rule in parsed.networks]
        if any(map(policy.ports_of, names)) or any(
            one.version == rule.network.version and one.network_address in rule.network
            for one in rules
            for rule in policy.networks
        ):
            yield f"another entry still allows {entry}, or a part of it"


def _some(found: list[Record]) -> str:
    entries = list(dict.fromkeys(entry for one in found for entry in one.policy.entries))
    more = len(entries) - 10
    return (", ".join(entries[:10]) or "no entry") + (f", and {more} more" if more > 0 else "")
