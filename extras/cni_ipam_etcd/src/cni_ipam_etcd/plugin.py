# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""The verbs of the plugin `cni-ipam-etcd`; without CNI_COMMAND, the operator's commands."""

import os
from typing import Final

from cni_invoker.documents.jsontypes import JsonObject, find_object
from cni_ipam_etcd.reservations import Reservations
from cni_ipam_etcd.section import Section
from cni_ipam_etcd.settings import Settings
from cni_plugin import Call, CallError, ErrorCode, Plugin

__all__ = ["PLUGIN", "main"]


def _settings(call: Call) -> Settings:
    return Settings.of_section(find_object(call.config, "ipam") or {})


def add(call: Call) -> JsonObject:
    """ADD: an address of each range set, all in one transaction."""
    section = Section.of_call(call)
    with Reservations.connected(_settings(call)) as reservations:
        attachment = (call.name, call.container_id, call.ifname)
        return section.result(reservations.reserve(attachment, section.sets, section.requested))


def delete(call: Call) -> None:
    """DEL: what is not reserved is no error. The ranges are not needed, and may have changed."""
    with Reservations.connected(_settings(call)) as reservations:
        found = reservations.find(call.name, call.container_id, call.ifname)
        if found is not None:
            reservations.release(*found)


def check(call: Call) -> None:
    """CHECK: the attachment has its addresses, and no other attachment has them."""
    with Reservations.connected(_settings(call)) as reservations:
        found = reservations.find(call.name, call.container_id, call.ifname)
        what = f"{call.ifname} of {call.container_id}"
        if found is None:
            raise CallError(ErrorCode.UNKNOWN_CONTAINER, f"{what} has no reservation on network {call.name}")
        if missing := reservations.missing(*found):
            raise CallError(ErrorCode.INTERNAL, f"{what} has lost the reservation of {', '.join(map(str, missing))}")


def gc(call: Call) -> None:
    """GC: release what this node has reserved on the network for attachments that are not valid."""
    valid = {(one.container_id, one.ifname) for one in call.valid_attachments}
    settings = _settings(call)
    with Reservations.connected(settings) as reservations:
        reservations.claim()  # valid attachments are those of this host
        reservations.mark_seen()
        for found, value in reservations.of_node(settings.node, call.name):
            if (found.container_id, found.ifname) not in valid:
                reservations.release(found, value)


def status(call: Call) -> None:
    """STATUS: etcd answers, and each set has a free address."""
    section = Section.of_call(call)
    try:
        with Reservations.connected(_settings(call)) as reservations:
            reservations.claim()
            reservations.mark_seen()
            for one in section.sets:
                reservations.find_free(call.name, one)
    except CallError as exc:
        if exc.code == ErrorCode.INVALID_CONFIGURATION:
            raise
        raise CallError(ErrorCode.NOT_AVAILABLE, exc.msg, exc.details) from exc


PLUGIN: Final = Plugin(add=add, delete=delete, check=check, gc=gc, status=status)


def main() -> None:
    """Act as the plugin, or as the operator's command."""
    if "CNI_COMMAND" in os.environ:
        PLUGIN.run()
    from cni_ipam_etcd.commands import commands  # noqa: PLC0415  # the plugin does not need it

    commands()
