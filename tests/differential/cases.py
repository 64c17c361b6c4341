# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Cases for both runtimes: configurations, arguments, operations and what plugins answer; chosen by a seed."""

import base64
import copy
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.differential.answers import PLUGINS, make_answers, make_result
from tests.differential.oddities import ODD_VERSIONS, VERSIONS, odd, spoil

_NAMES: Final = ("blue", "blue", "blue", "blue", "green-net", "a", "a.b_c-d", "0")
_CAPABILITIES: Final = ("portMappings", "mac", "ips", "bandwidth", "x-own")
_ODD_TEXTS: Final[Sequence[Callable[[bytes, random.Random], bytes]]] = (
    lambda text, chance: text[: chance.randrange(len(text))],
    lambda text, _: text + b"x",
    lambda text, _: text + b"{}",
    lambda text, _: b"\xef\xbb\xbf" + text,
    lambda text, _: b" \n\t" + text + b"\r\n ",
    lambda text, _: b"// a comment\n" + text,
    lambda text, _: text.replace(b":", b": NaN, ", 1),
    lambda text, _: text.replace(b'"', b"'", 2),
    lambda text, _: text.replace(b'"type"', b'"Type"'),
    lambda text, _: text.replace(b'"plugins"', b'"Plugins"'),
    lambda text, _: text.replace(b'"name"', b'"Name"', 1),
    lambda text, _: text.replace(b'"capabilities"', b'"Capabilities"'),
    lambda text, _: text.replace(b"{", b'{"type": "beta", ', 1),
    lambda text, _: text.replace(b"{", b'{"name": "other", "name": "again", ', 1),
    lambda text, _: text.replace(b"blue", b"bl\xff\xfeue"),
    lambda text, _: text.replace(b"blue", rb"bl\ud800ue"),
    lambda text, _: b"[" * 12_000 + text,
    lambda text, _: text.replace(b"{", b'{"deep": ' + b"[" * 300 + b"]" * 300 + b", ", 1),
    lambda _text, _: b"",
    lambda _text, _: b"null",
    lambda _text, _: b"[]",
    lambda _text, _: b'"x"',
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case.

    Attributes:
        name: `SEED:NUMBER`; makes it again.
        files: The configuration directory, content by relative path.
        request: What the driver receives, without the directories.
    """

    name: str
    files: dict[str, bytes]
    request: dict[str, Any]


def make_case(seed: int, number: int) -> Case:
    """Return the case of a number; the same for the same seed."""
    chance = random.Random(f"{seed}:{number}")
    network = chance.choice(_NAMES)
    document = _list(chance, network)
    for _ in range(chance.choice((0, 0, 0, 0, 1, 1, 2))):
        spoil(chance, document)
    files = _files(chance, network, document)
    attachment = {
        "containerID": _rarely(chance, "c1", ("", "-x", "c%", "C_1.x", "c 1", "c1\n", "x" * 180, "x" * 300)),
        "ifname": _rarely(chance, "eth0", ("", "lo", ".", "..", "a/b", "a:b", "a b", "x" * 15, "x" * 16, "ü" * 8)),
        "netns": _rarely(chance, "/run/netns/c1", ("", "relative", "/a;b", "/proc/1/ns/net")),
        "args": chance.choice(([], [], [], [["IgnoreUnknown", "1"]], [["K", "V"], ["A", ""]], _odd_args(chance))),
        "capabilityArgs": _capability_args(chance),
    }
    own = {"network": network, **attachment, "list": document}
    operations = _operations(chance, own)
    return Case(
        name=f"{seed}:{number}", files=files, request={"network": network, **attachment, "operations": operations}
    )


def _rarely(chance: random.Random, usual: str, others: Sequence[str]) -> str:
    return chance.choice(others) if chance.random() < 0.04 else usual


def _odd_args(chance: random.Random) -> list[list[str]]:
    return [[chance.choice(("K", "", "a=b", "a;b")), chance.choice(("V", "", "a=b", "a;b", "ü"))]]


def _list(chance: random.Random, network: str) -> dict[str, Any]:
    document: dict[str, Any] = {"cniVersion": chance.choice(VERSIONS[2:]), "name": network}
    if chance.random() < 0.15:
        document["cniVersion"] = chance.choice(ODD_VERSIONS + VERSIONS)
    if chance.random() < 0.2:
        document["cniVersions"] = chance.sample(VERSIONS, chance.randrange(4))
    if chance.random() < 0.05:
        document["cniVersions"] = [chance.choice(ODD_VERSIONS + VERSIONS) for _ in range(2)]
    for key in ("disableCheck", "disableGC", "loadOnlyInlinedPlugins"):
        if chance.random() < 0.08:
            document[key] = chance.choice((True, False, "true", "False", "no", None, 1))
    document["plugins"] = [_plugin(chance) for _ in range(chance.choice((1, 1, 2, 2, 3)))]
    return document


def _plugin(chance: random.Random) -> dict[str, Any]:
    plugin: dict[str, Any] = {"type": chance.choice(PLUGINS[:3])}
    if chance.random() < 0.04:
        plugin["type"] = chance.choice(("absent", "", "../alpha", "alpha/", ".", "a b"))
    if chance.random() < 0.3:
        plugin["ipam"] = {"type": chance.choice(("omega-ipam", "absent", "")), "subnet": "10.1.0.0/16"}
    if chance.random() < 0.4:
        plugin["capabilities"] = {
            capability: chance.choice((True, True, False)) for capability in chance.sample(_CAPABILITIES, 2)
        }
    if chance.random() < 0.1:
        plugin[chance.choice(("name", "cniVersion", "prevResult", "runtimeConfig", "cni.dev/x", "args", "dns"))] = (
            chance.choice(("own", {"x": 1}, {}))
        )
    if chance.random() < 0.2:
        plugin["x-" + chance.choice("abc")] = odd(chance)
    return plugin


def _files(chance: random.Random, network: str, document: dict[str, Any]) -> dict[str, bytes]:
    text = json.dumps(document, ensure_ascii=chance.random() < 0.5).encode()
    if chance.random() < 0.12:
        text = chance.choice(_ODD_TEXTS)(text, chance)
    name = "10-net.conflist"
    if chance.random() < 0.1:
        name = chance.choice(("10-net.conf", "10-net.json"))
        plugins = document.get("plugins")
        if chance.random() < 0.9 and isinstance(plugins, list) and plugins and isinstance(plugins[0], dict):
            single = {**plugins[0], **{key: document[key] for key in ("name", "cniVersion") if key in document}}
            text = json.dumps(single).encode()
    files = {name: text}
    if chance.random() < 0.1:
        further = json.dumps(_plugin(chance)).encode()
        files[f"{network}/{chance.choice(('10.conf', '10.conf', '10.json'))}"] = further
    if chance.random() < 0.08:
        other = json.dumps({**_list(chance, chance.choice((network, "other"))), "x-other": 1}).encode()
        files[chance.choice(("05-other.conflist", "20-other.conflist", "05-other.conf"))] = other
    if chance.random() < 0.02:
        files.pop(name)
    return files


def _capability_args(chance: random.Random) -> dict[str, Any]:
    known: dict[str, Any] = {
        "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}],
        "mac": "c2:11:22:33:44:55",
        "ips": ["10.1.0.9/16"],
        "bandwidth": {"ingressRate": 2048, "ingressBurst": 1600},
        "x-own": odd(chance),
    }
    return {key: known[key] for key in chance.sample(_CAPABILITIES, chance.choice((0, 0, 1, 2, 4)))}


def _operations(chance: random.Random, own: dict[str, Any]) -> list[dict[str, Any]]:
    answers = make_answers(chance)
    operations: list[dict[str, Any]] = [{"op": "answers", "answers": answers}]
    kinds = ["add", "check", "del", "del"]
    match chance.randrange(12):
        case 0:
            kinds = ["add", "gc", "check", "del"]
        case 1:
            kinds = ["status", "version"]
        case 2:
            kinds = ["check", "del"]
        case 3 | 4:
            kinds = ["add", chance.choice(("truncate", "replace")), "check", "del", "del"]
        case 5:
            kinds = ["replace", "gc"]
        case 6:
            kinds = ["add", "check", "del", "answers", "check", "del"]
        case 7:
            kinds = ["gc", "status", "add", "gc"]
    for kind in kinds:
        operation: dict[str, Any] = {"op": kind}
        if kind == "truncate":
            operation["percent"] = chance.choice((0, 0, 10, 50, 90, 99))
        elif kind == "replace":
            operation["content"] = base64.b64encode(_record(chance, own)).decode()
        elif kind == "answers":
            operation["answers"] = make_answers(chance, failures=0.05)
        elif kind == "gc":
            operation["valid"] = chance.choice(([], [{"containerID": "c1", "ifname": "eth0"}], _OTHER))
        operations.append(operation)
    return operations


_OTHER: Final = [{"containerID": "c2", "ifname": "eth0"}, {"containerID": "c1", "ifname": "eth1"}]


def _record(chance: random.Random, own: dict[str, Any]) -> bytes:
    """Return a record, most often of the case's own attachment, as libcni would have written it."""
    added, network = own["list"], own["network"]
    if chance.random() < 0.2:
        network = "blue"
        added = _list(chance, network)
    record: dict[str, Any] = {
        "kind": "cniCacheV1",
        "containerId": own["containerID"],
        "config": base64.b64encode(json.dumps(added).encode()).decode(),
        "ifName": own["ifname"],
        "networkName": network,
        "netns": own["netns"],
        "cniArgs": own["args"],
        "capabilityArgs": own["capabilityArgs"],
        "result": make_result(chance),
    }
    match chance.randrange(8):
        case 0:
            return json.dumps(make_result(chance)).encode()  # of before libcni 0.8
        case 1:
            record["kind"] = chance.choice(("cniCacheV2", "", None))
        case 2:
            del record[chance.choice(list(record))]
        case 3:
            record = copy.deepcopy(record)
            spoil(chance, record)
        case 4:
            return chance.choice((b"", b"{", b"null", b"[]", b"\0" * 20))
        case _:
            pass
    return json.dumps(record).encode()
