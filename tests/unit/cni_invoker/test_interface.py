# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""What programs may rely on."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from cni_invoker import CachedRuntime, FileCache, Result, Runtime
from tests.plugins import FakePlugins
from tests.records import list_of
from tests.unit.cni_invoker.runtime_scene import ATTACHMENT, LIMITS, RESULT


@pytest.fixture(name="opened")
def make_opened(plugins: FakePlugins, tmp_path: Path) -> CachedRuntime:
    """A runtime as most programs make it."""
    return CachedRuntime.open(plugins.directory, tmp_path / "cache", LIMITS, lock_dir=tmp_path / "lock")


def test_the_safe_constructor(opened: CachedRuntime, plugins: FakePlugins, tmp_path: Path) -> None:
    """Running plugins are recorded while they run, first users of iptables are locked, attachments are in files."""
    gate = tmp_path / "gate"
    gate.touch()
    plugins.install("firewall", ADD={"result": RESULT})
    network = list_of({"type": "firewall"})
    asyncio.run(opened.add(network, ATTACHMENT))
    assert (tmp_path / "cache/running").is_dir()
    assert list((tmp_path / "lock").iterdir()) == [tmp_path / "lock/shared-chains.lock"]
    another = CachedRuntime(Runtime("/x"), FileCache(tmp_path / "cache"))
    assert [one.attachment for one in asyncio.run(another.attachments())] == [ATTACHMENT]


def test_a_result_cannot_be_changed() -> None:
    """Neither through the document that it was made from, nor through the one that it gives."""
    given: dict[str, Any] = {**RESULT, "ips": [{"address": "10.1.2.3/24"}]}
    result = Result.from_document(given)
    given["ips"].clear()
    document: Any = result.document
    document["ips"][0]["address"] = "10.6.6.6/24"
    document["dns"] = {}
    assert result.document == RESULT
    assert result == Result.from_document(RESULT)
