# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""GC and STATUS with the CNI project's own plugins, the machine's and newer ones."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from cni_bridge_spec import JsonValue
from cni_invoker import CachedRuntime, FileCache, Runtime, Verb
from tests.kernel.real_plugins import (
    CAPABILITY_ARGS,
    LIMITS,
    LISTS,
    Executed,
    Plugins,
    assert_in_effect,
    container,
    inside,
    make_list,
    observe,
)
from tests.lab import leftovers

pytestmark = pytest.mark.usefixtures("host_with_uplink")


async def test_status_and_gc(plugins: Plugins, executed: Executed, tmp_path: Path) -> None:
    """GC deletes stale attachments and nothing else; plugins receive GC and STATUS if their CNI version has them."""
    runtime = Runtime([plugins.directory], LIMITS, observer=executed)
    cached = CachedRuntime(runtime, FileCache(tmp_path / "cache"))
    network = await runtime.negotiate(make_list(*LISTS["bridge with all"], data_dir=tmp_path))
    types = [plugin.type for plugin in network.plugins]
    before = observe(tmp_path)
    await runtime.status(network)
    with ExitStack() as containers:
        kept, stale = (containers.enter_context(container(name)) for name in ("kept", "stale"))
        ports: JsonValue = [{"hostPort": 8081, "containerPort": 80, "protocol": "tcp"}]
        stale = replace(stale, capability_args={**CAPABILITY_ARGS, "portMappings": ports})
        result = await cached.add(network, kept)
        after_first = observe(tmp_path)
        await cached.add(network, stale)
        assert leftovers(after_first, observe(tmp_path)) != ""
        await cached.gc(network, [kept.key])
        assert leftovers(after_first, observe(tmp_path)) == ""
        assert [found.attachment.key for found in await cached.attachments()] == [kept.key]
        assert inside(stale).links() == set()
        assert_in_effect(network, kept, result)
        if plugins.can_check(network):
            await cached.check(network, kept)
        await cached.gc(network, [])
        assert leftovers(before, observe(tmp_path)) == ""
    known = plugins.version == "1.1.0"
    assert executed.plugins(Verb.STATUS) == (types if known else [])
    assert executed.plugins(Verb.GC) == (types * 2 if known else [])
