# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The verbs of the plugin `egress`, which is the last of a list; see README.md."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

from cni_egress.enforcement import AddressTaken, Enforcement, MarkConflict, NftFailed
from cni_egress.host_link import find_place
from cni_egress.netlink import NetlinkError
from cni_egress.policy import BadEntry, Policy, expand_sets
from cni_egress.records import DEFAULT_MARK, DIRECTORY, BadRecord, Record, Records
from cni_egress.sets import read_set
from cni_invoker.documents.jsontypes import JsonError, find_object, find_str, get_bool, get_strings
from cni_plugin import Call, CallError, ErrorCode, Plugin

__all__ = ["PLUGIN", "main"]

_RESPONDER_LIMIT_S: Final = 3.0
"""How long ADD waits for a responder that is being restarted."""
_PAUSE_S: Final = 0.05


def _policy(call: Call) -> Policy:
    """Return the policy of a call: the network's entries, and those of the container if the runtime has sent any."""
    try:
        own = find_object(call.runtime_config, "egress") or {}
        entries = [*get_strings(call.config, "allow"), *get_strings(own, "allow")]
        return Policy.parse(
            expand_sets(entries, read_set),
            audit=get_bool(call.config, "audit"),
            public_suffixes=get_bool(call.config, "publicSuffixes"),
        )
    except (BadEntry, JsonError) as exc:
        raise CallError(
            ErrorCode.INVALID_CONFIGURATION, f"the allow-list of network {call.name} is invalid: {exc}"
        ) from exc


def _records(call: Call) -> Records:
    return Records(Path(find_str(call.config, "dataDir") or DIRECTORY))


def _record(call: Call, policy: Policy) -> Record:
    """Return the record of an ADD."""
    result = call.prev_result
    if result is None:
        raise CallError(
            ErrorCode.INVALID_CONFIGURATION, "prevResult is missing: egress follows the plugins that make the link"
        )
    link, port = find_place([one.name for one in result.interfaces if not one.sandbox])
    addresses = result.addresses_of(call.ifname)
    if not addresses:
        raise CallError(
            ErrorCode.INVALID_CONFIGURATION,
            f"{call.ifname} has no address, and policies are found by address",
            "the plugin before egress needs an IPAM plugin",
        )
    macs = [one.mac for one in result.interfaces if one.sandbox and one.name == call.ifname]
    if link != port and not any(macs):
        raise CallError(ErrorCode.INVALID_CONFIGURATION, f"the result before egress has no MAC of {call.ifname}")
    return Record(
        network=call.name,
        container_id=call.container_id,
        ifname=call.ifname,
        link=link,
        port=port,
        mac=macs[0].lower() if macs else "",
        addresses=tuple(one.ip for one in addresses),
        subnets=tuple(dict.fromkeys(one.network for one in addresses)),
        policy=policy,
        mark=_mark(call),
    )


def _mark(call: Call) -> int:
    """Return the bit of the mark, e.g. of `"mark": "0x20000000"`."""
    text = find_str(call.config, "mark")
    try:
        mark = DEFAULT_MARK if text is None else int(text, 0)
    except ValueError:
        mark = 0
    if mark.bit_count() != 1 or mark >> 32:
        raise CallError(ErrorCode.INVALID_CONFIGURATION, f'mark {text!r} is not one bit of 32, e.g. "0x20000000"')
    return mark


@contextmanager
def _errors() -> Iterator[None]:
    """Give what the body raises a code of CNI."""
    try:
        yield
    except AddressTaken as exc:
        raise CallError(ErrorCode.INVALID_CONFIGURATION, str(exc), "give each guarded network its own subnet") from exc
    except MarkConflict as exc:
        raise CallError(ErrorCode.INVALID_CONFIGURATION, str(exc), "give all guarded networks the same `mark`") from exc
    except BadRecord as exc:
        raise CallError(ErrorCode.IO_FAILURE, str(exc), "remove it if its container is gone") from exc
    except NftFailed as exc:
        raise CallError(ErrorCode.INTERNAL, str(exc)) from exc
    except NetlinkError as exc:
        details = "egress needs root, and Linux 5.9 with nf_tables (modules nf_tables, nft_fib_inet, nft_reject_inet)"
        raise CallError(ErrorCode.INTERNAL, f"nf_tables: {exc.strerror}", details) from exc
    except OSError as exc:
        raise CallError(ErrorCode.IO_FAILURE, str(exc)) from exc


def _require_responder(records: Records, limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not records.has_responder():
        if time.monotonic() > deadline:
            raise CallError(
                ErrorCode.TRY_AGAIN_LATER,
                "the allow-list has names, and cni-egress does not run, which resolves them",
                "systemctl enable --now cni-egress; lists of addresses need none",
            )
        time.sleep(_PAUSE_S)


def add(call: Call) -> None:
    """ADD: the policy is in force when it returns. The result is that of the plugin before."""
    policy = _policy(call)
    records = _records(call)
    if policy.needs_responder:
        _require_responder(records, _RESPONDER_LIMIT_S)
    with _errors():
        record = _record(call, policy)
        with records.locked(), Enforcement(records) as enforcement:
            enforcement.protect(record)


def delete(call: Call) -> None:
    """DEL: what the record has. Neither the allow-list nor the result is needed."""
    records = _records(call)
    with _errors():
        if records.find(call.container_id, call.ifname) is None:
            return
        with records.locked(), Enforcement(records) as enforcement:
            record = records.find(call.container_id, call.ifname)
            if record is not None:
                enforcement.release(record)


def gc(call: Call) -> None:
    """GC: DEL of each attachment of the network that is not valid."""
    valid = {(one.container_id, one.ifname) for one in call.valid_attachments}
    records = _records(call)
    with _errors(), records.locked(), Enforcement(records) as enforcement:
        for record in records.all():
            if record.network == call.name and (record.container_id, record.ifname) not in valid:
                enforcement.release(record)
        enforcement.sweep()


def check(call: Call) -> None:
    """CHECK: the tables have all that ADD has put there, and the responder runs if it is needed."""
    records = _records(call)
    with _errors():
        record = records.find(call.container_id, call.ifname)
        if record is None:
            raise CallError(
                ErrorCode.UNKNOWN_CONTAINER, f"{call.ifname} of {call.container_id} has no record of egress"
            )
        with Enforcement(records) as enforcement:
            if missing := enforcement.missing(record):
                raise CallError(ErrorCode.INTERNAL, f"{record} is not fully guarded: {missing} is missing")
    if record.policy.needs_responder:
        _require_responder(records, 0)


def status(call: Call) -> None:
    """STATUS: the settings are valid, the kernel has nf_tables, and the responder runs if it is needed."""
    policy = _policy(call)
    _mark(call)
    records = _records(call)
    try:
        with _errors(), Enforcement(records) as enforcement:
            enforcement.require_nftables()
        if policy.needs_responder:
            _require_responder(records, 0)
    except CallError as exc:
        raise CallError(ErrorCode.NOT_AVAILABLE, exc.msg, exc.details) from exc


PLUGIN: Final = Plugin(add=add, delete=delete, check=check, gc=gc, status=status)


def main() -> NoReturn:
    """Act as the plugin."""
    PLUGIN.run(about="egress: a CNI plugin under which a container reaches only what its network allows")
