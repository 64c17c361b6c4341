# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""However many programs scrape the metrics, they are computed at most once a second."""

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cnm_bridge.core.settings import Settings
from cnm_bridge.server.admin import metrics
from tests.contract.serving import Served, serving


async def scrape(served: Served) -> tuple[float, str]:
    """Return the number of Docker's calls in the answer to a scrape, and the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    _, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    return sum(sample.value for sample in families["cni_bridge_calls"].samples), body.decode()


@pytest.mark.parametrize(("valid_s", "seen"), [(3600.0, [0, 0]), (0.0, [0, 1])])
async def test_scrapes_share_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valid_s: float, seen: list[float]
) -> None:
    """An answer serves scrapes as long as it is valid, those that come at the same time too; then it is renewed."""
    monkeypatch.setattr(metrics, "_VALID_S", valid_s)
    async with serving(tmp_path, Settings(metrics_listen="127.0.0.1:0")) as served:
        before = await scrape(served)
        await served.post("NetworkDriver.Leave", b"{}")
        after = await asyncio.gather(*(scrape(served) for _ in range(5)))
    assert [before[0], after[0][0]] == seen
    assert (len({text for _, text in after}) == 1) == (valid_s > 0)


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("GET /metrics?x=y HTTP/1.1", "200"),
        ("GET /metrics? HTTP/1.1", "200"),
        ("GET /metricsx HTTP/1.1", "404"),
        ("GET /?/metrics HTTP/1.1", "404"),
        ("POST /metrics HTTP/1.1", "404"),
        ("GET", "404"),
    ],
)
async def test_a_query_is_ignored(tmp_path: Path, line: str, status: str) -> None:
    """A scraper may be configured to send parameters."""
    async with serving(tmp_path, Settings(metrics_listen="127.0.0.1:0")) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"{line}\r\n\r\n".encode())
        assert (await reader.read()).split()[1].decode() == status
        writer.close()
