# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What plugins print in a case: versions, results and errors, chosen by a seed."""

import base64
import json
import random
from typing import Any, Final

from tests.differential.oddities import ODD_VERSIONS, VERSIONS, odd, spoil

PLUGINS: Final = ("alpha", "beta", "gamma", "omega-ipam")
"""The types of plugins for which there is a file."""


def make_answers(chance: random.Random, failures: float = 0.12) -> dict[str, Any]:
    """Return what each plugin prints for each verb."""
    spoken = chance.choice((VERSIONS, VERSIONS, VERSIONS, VERSIONS[:6], VERSIONS[3:5]))
    version = {"cniVersion": spoken[-1], "supportedVersions": list(spoken)}
    answers: dict[str, Any] = {}
    for plugin in PLUGINS:
        own: dict[str, Any] = {"VERSION": _answer(0, json.dumps(version).encode())}
        if chance.random() < 0.06:
            own["VERSION"] = _odd_version(chance)
        own["ADD"] = _answer(0, _printed(chance))
        for verb in ("ADD", "CHECK", "DEL", "GC", "STATUS"):
            if chance.random() < failures:
                own[verb] = _failure(chance)
        answers[plugin] = own
    return answers


def _odd_version(chance: random.Random) -> dict[str, Any]:
    texts = (
        b"", b"null", b"{}", b'{"cniVersion": "0.2.0"}', b'{"cniVersion": "1.0.0"}',
        b'{"supportedVersions": ["1.0.0"]}', b'{"cniVersion": "1.0.0", "supportedVersions": []}',
        b'{"cniVersion": "1.0.0", "supportedVersions": [1]}',
    )  # fmt: skip
    if chance.random() < 0.3:
        return _answer(1, b'{"code": 1, "msg": "unknown CNI_COMMAND: VERSION"}')
    return _answer(chance.choice((0, 0, 0, 1)), chance.choice(texts))


def _failure(chance: random.Random) -> dict[str, Any]:
    error = {"code": chance.choice((1, 2, 3, 4, 5, 6, 7, 50, 51, 100, 999)), "msg": "broken", "details": "more"}
    match chance.randrange(8):
        case 0:
            return _answer(1, b"", b"words on stderr")
        case 1:
            return _answer(2, b"")
        case 2:
            return _answer(1, chance.choice((b"no JSON", b"{", b"null", b"[]", b'{"msg": 5}')), b"words on stderr")
        case 3:
            spoil(chance, error)
        case 4:
            error["cniVersion"] = "1.0.0"
        case _:
            pass
    return _answer(1, json.dumps(error).encode())


def _answer(status: int, stdout: bytes, stderr: bytes = b"") -> dict[str, Any]:
    encoded = [base64.b64encode(text).decode() for text in (stdout, stderr)]
    return {"status": status, "stdout": encoded[0], "stderr": encoded[1]}


def _printed(chance: random.Random) -> bytes:
    """Return what a plugin prints for a successful ADD."""
    if chance.random() < 0.03:
        return chance.choice((b"", b"null", b"{}", b"[]", b"{", b'"x"', b"no JSON", b"{}{}", b" \n{}\n"))
    result = make_result(chance)
    if chance.random() < 0.15:
        spoil(chance, result)
    return json.dumps(result).encode()


def make_result(chance: random.Random) -> dict[str, Any]:
    """Return a result of any CNI version."""
    version = chance.choice(("", *VERSIONS, "1.0.0", "1.0.0", "1.1.0", "0.4.0"))
    if chance.random() < 0.02:
        version = chance.choice(ODD_VERSIONS)
    result: dict[str, Any] = {"cniVersion": version} if version or chance.random() < 0.5 else {}
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "10.9.0.0/16", "gw": "10.1.0.2"}, {"dst": "::/0", "gw": "fd00::1"}]
    chosen = chance.sample(routes, chance.randrange(3))
    if version in {"0.1.0", "0.2.0"}:
        result["ip4"] = {"ip": "10.1.0.9/16", "gateway": "10.1.0.1", "routes": chosen[:1]}
        if chance.random() < 0.4:
            result["ip6"] = {"ip": "fd00::9/64"}
    else:
        result["interfaces"] = [
            {"name": "br0"},
            {"name": "eth0", "mac": "c2:11:22:33:44:55", "sandbox": "/run/netns/c1"},
        ]
        if version == "1.1.0":
            result["interfaces"][0] |= {"mtu": 1500, "socketPath": "/run/s", "pciID": "0000:04:00.5"}
        old = {"version": "4"} if version in {"0.3.0", "0.3.1", "0.4.0"} else {}
        result["ips"] = [
            {"address": "10.1.0.9/16", "gateway": "10.1.0.1", "interface": chance.choice((0, 1, 1, 7, -1))} | old
        ]
        if chance.random() < 0.3:
            old = {"version": "6"} if old else {}
            result["ips"].append({"address": "fd00::9/64"} | old)
        if chosen:
            result["routes"] = [one | chance.choice(({}, {}, {"mtu": 1400, "priority": 5})) for one in chosen]
    if chance.random() < 0.5:
        result["dns"] = chance.choice(
            ({}, {"nameservers": ["10.1.0.1"], "search": ["x"], "domain": "d", "options": []})
        )
    if chance.random() < 0.05:
        result["x-unknown"] = odd(chance)
    return result
