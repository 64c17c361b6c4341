# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""DHCP leases are got again beside the starts of containers, not in their place."""

import asyncio
from pathlib import Path

from cni_bridge_spec import JsonObject
from cni_bridge_state import Phase
from cni_invoker import Attachment, Limits, Runtime
from cnm_bridge.driver.attach.leases import Leases
from cnm_bridge.system.kernel import Kernel
from tests.plugins import FakePlugins
from tests.records import endpoint, list_of

HANG_LIMIT_S = 30.0
"""Ends a test that hangs. It measures nothing."""


async def test_a_start_does_not_wait_for_silent_servers(tmp_path: Path) -> None:
    """While leases of a network wait for their server, a container on the same network starts at once."""
    plugins = FakePlugins(tmp_path / "bin")
    plugins.install("dhcp", ADD={"sleep_s": 60})
    plugins.install("macvlan", ADD={"result": {"cniVersion": "1.0.0"}})
    runtime = Runtime([plugins.directory], Limits(executions=1))
    leases = Leases(runtime, Kernel(reply_limit_s=1.0))
    documents: list[JsonObject] = [{"type": "macvlan", "ipam": {"type": "dhcp"}}]
    records = [endpoint(name * 64, Phase.JOINED, plugins=documents) for name in "abc"]
    network = list_of({"type": "macvlan"}, name="lan")
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(HANG_LIMIT_S):
        renewals = [tasks.create_task(leases.renew(record)) for record in records]
        while plugins.calls.count(("dhcp", "ADD")) < len(records):  # noqa: ASYNC110  # other processes write them
            await asyncio.sleep(0.01)
        await runtime.add(network, Attachment(container_id="c", ifname="eth0", netns="/run/netns/c"))
        for renewal in renewals:
            renewal.cancel()
