# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Any file in the cache becomes an attachment or a typed error."""

from typing import Final

from hypothesis import given

from cni_bridge_spec import JsonError, JsonObject, JsonValue, render_json
from cni_tool.record import parse_record
from tests.unit.cni_invoker.test_properties import RESULT, documents

RECORD: Final[JsonObject] = {
    "kind": "cniCacheV1",
    "containerId": "c1",
    "config": "e30=",
    "ifName": "eth0",
    "networkName": "net",
    "netns": "/run/netns/c1",
    "cniArgs": [["K", "V"]],
    "capabilityArgs": {},
    "result": RESULT,
    "bootId": "b",
}


@given(documents(RECORD))
def test_any_json_is_a_cache_record_or_a_json_error(document: JsonValue) -> None:
    """The cache reports that error as damage."""
    try:
        parse_record(render_json(document))
    except JsonError:
        return
