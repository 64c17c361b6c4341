# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Requests that Docker never sends to the plugin socket: no traceback, no 5xx, no change; Docker is still answered."""

import asyncio
import gzip
import json
import stat
import threading
from pathlib import Path

import pytest

from cni_bridge_spec import JsonObject, JsonValue, violation
from tests.contract.serving import serving

NETWORK, ENDPOINT = "a1" * 32, "e2" * 32
BODY = json.dumps({"NetworkID": NETWORK, "EndpointID": ENDPOINT}).encode()
CREATE = "NetworkDriver.CreateNetwork"

HEAD = b"POST /NetworkDriver.Leave HTTP/1.1\r\nHost: x\r\n"
MALFORMED = {
    "nothing": b"",
    "noise": bytes(range(256)) * 20,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200,
    "no version": b"POST /NetworkDriver.Leave\r\n\r\n",
    "unknown version": b"POST /NetworkDriver.Leave HTTP/9.9\r\nHost: x\r\n\r\n",
    "no method": b" /NetworkDriver.Leave HTTP/1.1\r\n\r\n",
    "NUL in the path": b"POST /NetworkDriver.\0Leave HTTP/1.1\r\nHost: x\r\n\r\n",
    "path out of the tree": b"POST /../../etc/passwd HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "encoded surrogate": b"POST /%ED%A0%80%FF%00 HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "absolute path": b"POST http://x:99999/NetworkDriver.Leave HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    "endless path": b"POST /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "length of words": HEAD + b"Content-Length: many\r\n\r\n",
    "huge length": HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\n{}",
    "two lengths": HEAD + b"Content-Length: 2\r\nContent-Length: 200\r\n\r\n{}",
    "length and chunks": HEAD + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "bad chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "huge chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n{}",
    "unknown coding": HEAD + b"Transfer-Encoding: gzip, identity\r\n\r\n{}",
    "header without colon": HEAD + b"Nonsense\r\n\r\n",
    "NUL in a header": HEAD + b"X-\0: \0\r\n\r\n",
    "folded header": HEAD + b"X-A: b\r\n c\r\nContent-Length: 0\r\n\r\n",
    "header flood": HEAD + b"".join(b"X-%d: y\r\n" % i for i in range(50_000)) + b"\r\n",
    "endless header": HEAD + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n",
    "upgrade": HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n\r\n",
    "unknown expectation": HEAD + b"Expect: the-unexpected\r\nContent-Length: 0\r\n\r\n",
    "another method": b"DELETE /NetworkDriver.Leave HTTP/1.1\r\nHost: x\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}

BODIES = {
    "deep arrays": b"[" * 100_000,
    "deep and whole": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "deep below a key": b'{"NetworkID":"%s","Options":' % NETWORK.encode() + b"[" * 900 + b"]" * 900 + b"}",
    "invalid UTF-8": b'{"NetworkID": "\xff\xfe"}',
    "UTF-16": BODY.decode().encode("utf-16"),
    "byte order mark": b"\xef\xbb\xbf" + BODY,
    "NaN": b'{"NetworkID": NaN}',
    "a number without end": b'{"NetworkID": ' + b"9" * 100_000 + b"}",
    "a number too large": b'{"NetworkID": 1e999}',
    "lone surrogate": b'{"NetworkID": "\\ud800"}',
    "NUL": b'{"NetworkID": "\\u0000"}',
    "two documents": BODY + BODY,
    "path": b'{"NetworkID": "../../../../etc/passwd"}',
    "4 kB": b'{"NetworkID": "' + b"a" * 4096 + b'"}',
    "no object": b'"NetworkID"',
    "null": b"null",
    "millions of values": b'{"NetworkID": [' + b"0," * 2_000_000 + b"0]}",
    "an option like a book": b'{"NetworkID":"%s","Options":{"com.docker.network.generic":{"%s":"x"}}}'
    % (NETWORK.encode(), b"x" * 1_000_000),
    "an option with a surrogate": b'{"NetworkID":"%s","Options":{"com.docker.network.generic":%s}}'
    % (NETWORK.encode(), b'{"cni.network":"\\udc0f"}'),
    "duplicate keys": b'{"NetworkID":"%s","NetworkID":"../x"}' % NETWORK.encode(),
}


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED)
async def test_malformed_requests(tmp_path: Path, request_bytes: bytes) -> None:
    """Each is refused with a 4xx, answered if it is a valid call after all, or its connection is closed."""
    async with serving(tmp_path) as served:
        answer = await served.send(request_bytes, end=True)
        assert not answer or _status(answer) < 500
        assert b"Traceback" not in answer
        assert not served.records()
        assert await served.is_answering()


@pytest.mark.parametrize("method", [CREATE, "NetworkDriver.CreateEndpoint", "NetworkDriver.Join"])
async def test_malformed_bodies(tmp_path: Path, method: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is answered with an error of limited length, and no bug is logged."""
    async with serving(tmp_path) as served:
        for name, body in BODIES.items():
            status, answer = await served.post(method, body)
            assert (status, set(answer)) == (200, {"Err"}), name
            assert len(str(answer["Err"])) < 10_000, name
            assert "internal error" not in str(answer["Err"]), name
        assert not served.records()
    captured = capsys.readouterr()
    assert "Traceback" not in captured.out + captured.err


async def test_an_invalid_body_is_explained_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one imports a library, which takes longer than the event loop may stand still."""
    threads: list[threading.Thread] = []

    def find_error(schema: JsonObject, document: JsonValue) -> tuple[str, str] | None:
        threads.append(threading.current_thread())
        return violation_error(schema, document)

    violation_error = violation.find_error
    monkeypatch.setattr(violation, "find_error", find_error)
    async with serving(tmp_path) as served:
        _, answer = await served.post(CREATE, b"{}")
        assert "'NetworkID' is a required property" in str(answer["Err"])
    assert threads
    assert threading.main_thread() not in threads


async def test_a_body_of_100_megabytes(tmp_path: Path) -> None:
    """It is not read to its end, and other calls do not wait for it."""
    async with serving(tmp_path) as served:
        head = HEAD + b"Content-Length: 104857600\r\n\r\n"
        answer, is_answering = await asyncio.gather(served.send(head + b" " * 104_857_600), served.is_answering())
        assert is_answering
        assert not answer or b"larger than" in answer
        assert await served.is_answering()


async def test_a_compressed_body(tmp_path: Path) -> None:
    """It is refused without being decompressed."""
    async with serving(tmp_path) as served:
        status, answer = await served.post(CREATE, gzip.compress(b" " * 30_000_000), "Content-Encoding: gzip")
        assert (status, "not UTF-8" in str(answer["Err"])) == (200, True)


async def test_pipelined_requests(tmp_path: Path) -> None:
    """Each answer closes its connection: requests after the first one have no effect."""
    async with serving(tmp_path) as served:
        one = HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
        assert (await served.send(one * 3)).count(b"HTTP/1.1 200") == 1


async def test_a_client_of_http_1_0(tmp_path: Path) -> None:
    """It is answered, although it sends no Host header."""
    async with serving(tmp_path) as served:
        answer = await served.send(
            b"POST /NetworkDriver.Leave HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(BODY) + BODY
        )
        assert _status(answer) == 200
        assert answer.endswith(b"{}")


async def test_500_calls_at_once(tmp_path: Path) -> None:
    """All of them are answered."""
    async with serving(tmp_path) as served:
        answers = await asyncio.gather(*(served.post("NetworkDriver.Leave", BODY) for _ in range(500)))
        assert answers == [(200, {})] * 500


async def test_docker_is_answered_beside_slow_clients(tmp_path: Path) -> None:
    """Clients that send nothing, or a part of a request, do not keep others from being answered."""
    async with serving(tmp_path) as served:
        idle = [await asyncio.open_unix_connection(served.socket) for _ in range(300)]
        try:
            for number, (_, writer) in enumerate(idle):
                writer.write((b"", HEAD, HEAD + b"Content-Length: 500\r\n\r\n{")[number % 3])
            assert await served.is_answering()
            assert await served.post("NetworkDriver.Leave", BODY) == (200, {})
        finally:
            for _, writer in idle:
                writer.transport.abort()
        assert await served.is_answering()


async def test_only_root_may_connect(tmp_path: Path) -> None:
    """Only its owner may use the socket, because its clients can make plugins run as root."""
    async with serving(tmp_path) as served:
        assert stat.filemode(served.socket.stat().st_mode) == "srw-------"


def _status(answer: bytes) -> int:
    return int(answer.split()[1])
