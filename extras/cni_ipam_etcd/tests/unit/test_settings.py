# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Where etcd is described, and what is refused."""

import json
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject
from cni_ipam_etcd.settings import Settings
from cni_plugin import CallError, ErrorCode


def test_an_object_and_a_file(tmp_path: Path) -> None:
    """A section has the settings, or names a file that has them."""
    settings: JsonObject = {"endpoints": ["https://[fd00::1]:4001", "https://etcd"], "prefix": "/lan/", "node": "one"}
    (tmp_path / "etcd.json").write_text(json.dumps(settings), "utf-8")
    inside = Settings.of_section({"etcd": settings})
    assert inside == Settings.of_section({"etcd": str(tmp_path / "etcd.json")})
    assert [(one.host, one.port, one.is_tls) for one in inside.endpoints] == [
        ("fd00::1", 4001, True),
        ("etcd", 2379, True),
    ]
    assert (inside.prefix, inside.node) == ("/lan", "one")


@pytest.mark.parametrize(
    ("etcd", "message"),
    [
        ({}, "endpoints is missing"),
        ({"endpoints": ["10.0.0.1:2379"]}, "'10.0.0.1:2379' is not of the form"),
        ({"endpoints": ["http://x:99999"]}, "is not of the form"),
        ({"endpoints": ["http://user:secret@x"]}, "is not of the form"),
        ({"endpoints": ["http://x"], "caFile": "/ca.pem"}, "does not begin with https"),
        ({"endpoints": ["http://x"], "timeot": 3}, "unknown key timeot; there are endpoints, caFile"),
        ({"endpoints": ["http://x"], "timeout": 0}, "timeout must be a number of seconds"),
        ({"endpoints": ["http://x"], "timeout": True}, "timeout must be a number of seconds"),
        ({"endpoints": ["http://x"], "prefix": "lan"}, "prefix 'lan' must begin with a slash"),
        ({"endpoints": ["http://x"], "node": "a/b"}, "must begin with a letter or digit"),
        (7, "must be an object"),
        ("/none/etcd.json", "/none/etcd.json: No such file"),
    ],
)
def test_what_is_refused(etcd: JsonObject, message: str) -> None:
    """The error says where the settings are, and what is wrong with them."""
    with pytest.raises(CallError, match=message) as caught:
        Settings.of_section({"etcd": etcd})
    assert caught.value.code == ErrorCode.INVALID_CONFIGURATION
    assert "/etc/cni/cni-ipam-etcd.json" in caught.value.details
