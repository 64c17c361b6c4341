# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Reading the log of refusals, and learning an allow-list from it."""

import json
import threading
from itertools import islice
from pathlib import Path

from cni_egress.log_lines import follow_lines, learn_entries, read_lines
from cni_egress.policy import Policy
from cni_invoker.documents.jsontypes import JsonObject


def connection(name: str = "", address: str = "192.0.2.7", port: int = 443, protocol: str = "tcp") -> JsonObject:
    """A line of a connection."""
    line: JsonObject = {"kind": "connection", "address": address, "port": port, "protocol": protocol}
    return {**line, "name": name} if name else line


def test_both_files_are_read(tmp_path: Path) -> None:
    """The former file first; broken lines and other JSON are left out."""
    path = tmp_path / "refusals.jsonl"
    assert list(read_lines(path)) == []
    path.with_name("refusals.jsonl.1").write_text('{"a": 1}\n{"a"\n')
    path.write_text('[]\n{"a": 2}\n{"a": 3')
    assert list(read_lines(path)) == [{"a": 1}, {"a": 2}]


def test_following(tmp_path: Path) -> None:
    """What was there is not yielded; a file that is replaced is followed."""
    path = tmp_path / "refusals.jsonl"
    path.write_text('{"a": 1}\n')
    lines = follow_lines(path)
    got: list[JsonObject] = []
    thread = threading.Thread(target=lambda: got.extend(islice(lines, 3)))
    thread.start()
    thread.join(0.5)
    with path.open("a") as opened:
        opened.write('{"a": 2}\n{"a":')
        opened.flush()
        thread.join(0.5)
        opened.write(" 3}\n")
    thread.join(0.8)
    path.rename(tmp_path / "refusals.jsonl.1")
    path.write_text(json.dumps({"a": 4}) + "\n")
    thread.join(10)
    assert got == [{"a": 2}, {"a": 3}, {"a": 4}]
    lines.close()


def test_what_is_learnt() -> None:
    """A name alone if the ports of the web are enough; addresses without a name with their ports."""
    entries = learn_entries(
        [
            connection("www.example.com"),
            connection("www.example.com", port=80),
            connection("git.example.com"),
            connection("git.example.com", port=22),
            connection(address="2001:db8::7", port=5432),
            connection(port=53, protocol="udp"),
            {"kind": "connection", "address": "192.0.2.9", "protocol": "icmp"},
            {"kind": "name", "name": "only-asked.example.com", "type": 1},
            {"kind": "name", "name": "text.example.com", "type": 16},
            {"kind": "name", "name": "under_score.example", "type": 16},
            {"kind": "address", "name": "private.example.com", "address": "10.0.0.1"},
        ]
    )
    assert entries == [
        "192.0.2.7:53/udp",
        "[2001:db8::7]:5432/tcp",
        "git.example.com:22/tcp",
        "git.example.com:443/tcp",
        "text.example.com",
        "www.example.com",
    ]
    Policy.parse(entries)
