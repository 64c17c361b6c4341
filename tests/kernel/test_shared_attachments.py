# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Endpoints with the same DHCP client identifier share an attachment.

After an older state was restored, the record of one that is being deleted may name what a running container has.
"""

import os
from dataclasses import replace
from pathlib import Path
from secrets import token_hex

from cni_bridge_state import AttachmentId, EndpointRecord, Phase, ProcessRecord
from cni_bridge_state.store import Store
from cnm_bridge.core.naming import alternative_name
from cnm_bridge.system.kernel import Kernel
from tests.kernel.namespace import Namespace
from tests.kernel.teardown_queue import FIRST, Slow, make_queue, running, wait_gone
from tests.records import endpoint, put

SHARED = AttachmentId(token_hex(32))


async def store_deleting(
    store: Store, attachment_id: AttachmentId, sandbox: Path, process: ProcessRecord | None = None
) -> EndpointRecord:
    """Store an endpoint that is being deleted, with an attachment and the sandbox that it was joined to."""
    record = endpoint(FIRST)
    attachment = replace(record.attachment, id=attachment_id)
    record = replace(record, attachment=attachment, sandbox_key=str(sandbox), first_process=process)
    await put(store, record)
    deleting = replace(record, phase=Phase.DELETING)
    await store.put_endpoint(deleting)
    return deleting


def add_link(container: Namespace, attachment_id: AttachmentId) -> None:
    """Make a link of an attachment in a running container."""
    container.ip(
        "link add eth0 type veth peer name peer",
        f"link property add dev eth0 altname {alternative_name(attachment_id)}",
    )


async def test_a_container_that_runs_on_the_same_attachment(
    store: Store, kernel: Kernel, inhabited: Namespace, tmp_path: Path
) -> None:
    """The DEL would take its network, so the teardown waits until that container has ended."""
    record = await store_deleting(store, SHARED, tmp_path / "gone")
    add_link(inhabited, SHARED)
    teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
    teardowns.add(record.id)
    async with running(teardowns):
        await teardowns.wait_tried()
        assert f"attachment {SHARED}" in (teardowns.find_error(record.id) or "")
        assert store.find_endpoint(record.id) is not None
        inhabited.ip("link delete eth0")
        teardowns.add(record.id)
        await wait_gone(store, record.id)


async def test_the_containers_own_endpoint(store: Store, kernel: Kernel, inhabited: Namespace, tmp_path: Path) -> None:
    """It leaves a running container: its sandbox exists, or its first process lives, or none shares its attachment."""
    started = kernel.find_start(os.getpid())
    assert started is not None
    add_link(inhabited, SHARED)
    inhabited.ip(f"link property add dev eth0 altname {alternative_name(AttachmentId(FIRST))}")
    lives = ProcessRecord(pid=os.getpid(), started=started)
    for attachment_id, sandbox, process in (
        (SHARED, tmp_path, None),
        (SHARED, tmp_path / "gone", lives),
        (AttachmentId(FIRST), tmp_path / "gone", None),
    ):
        record = await store_deleting(store, attachment_id, sandbox, process)
        teardowns = make_queue(store, kernel, tmp_path / "run", Slow)
        teardowns.add(record.id)
        async with running(teardowns):
            await wait_gone(store, record.id)
