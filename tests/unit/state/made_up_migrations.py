# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Migrations that no release has, and states of their earlier versions.

Version 1 called an endpoint's `bootId` `boot`, version 2 called it `kernel`; networks have not changed.
"""

from pathlib import Path
from typing import Final

import plyvel

from cni_bridge_spec import JsonObject, get_int, get_object, get_objects, get_str, render_json
from cni_bridge_state.codec import join_checksum
from cni_bridge_state.migrations import Migrations
from cni_bridge_state.store import Store

__all__ = ["MIGRATIONS", "as_version", "write_older"]

_NAMES: Final = ("boot", "kernel", "bootId")
"""The name in each version."""


def _rename(document: JsonObject, old: str, new: str) -> JsonObject:
    boot_id = get_str(document, old)
    return {**{name: document[name] for name in document if name != old}, new: boot_id}


MIGRATIONS: Final = Migrations(
    (
        {"endpoint": lambda document: _rename(document, "boot", "kernel")},
        {"endpoint": lambda document: _rename(document, "kernel", "bootId")},
    )
)


def as_version(version: int, document: JsonObject) -> JsonObject:
    """Return the document of an endpoint as an earlier version had it."""
    return _rename(document, "bootId", _NAMES[version - 1])


def write_older(directory: Path, exported: JsonObject) -> None:
    """Write a state directory of an earlier version, with the records of its export."""
    Store.open(directory).close()
    kinds = ((kind, record) for kind in ("network", "endpoint") for record in get_objects(exported, f"{kind}s"))
    with plyvel.DB(str(directory / "leveldb")) as db:
        for kind, record in kinds:
            db.put(f"{kind}/{get_str(record, 'id')}".encode(), join_checksum(render_json(record)))
        for key, text in get_object(exported, "meta").items():
            db.put(key.encode(), str(text).encode())
        db.put(b"meta/schema", str(get_int(exported, "schema")).encode())
