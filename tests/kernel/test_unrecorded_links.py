# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cni-bridge developers
"""Finding running containers whose endpoint has no record."""

import asyncio
import subprocess
import sys
from pathlib import Path
from secrets import token_hex
from typing import Final

import pytest

from cni_bridge_state import AttachmentId
from cni_bridge_state.store import Store
from cnm_bridge.core.model.naming import alternative_name
from cnm_bridge.driver.teardown.address_owners import AddressInUse, UnrecordedLinks
from cnm_bridge.system.kernel import Kernel
from cnm_bridge.system.kernel.namespaces.reader import MarkedAddresses

ATTACHMENT: Final = AttachmentId(token_hex(32))
ADDRESS, OTHER = "10.201.7.9", "10.201.7.10"

# A user namespace may enter the network namespaces that it has made, and no others.
PREPARE: Final = f"""
set -eu
touch own
unshare --net sh -euc '
    mount --bind /proc/self/ns/net own
    ip link add marked type veth peer name other
    ip link property add dev marked altname {alternative_name(ATTACHMENT)}
    ip address add {ADDRESS}/24 dev marked'
exec "$@"
"""
LOOK: Final = f"""
import asyncio
from pathlib import Path
from cni_bridge_state.store import Store
from cnm_bridge.driver.teardown.address_owners import AddressInUse, UnrecordedLinks
from cnm_bridge.system.kernel import Kernel

async def look():
    kernel = Kernel(reply_limit_s=5.0)
    kernel.distrust_processes()
    unrecorded = UnrecordedLinks(Store.open(Path("state")), kernel, Path("run").absolute())
    await unrecorded.refuse_if_used("firewall", ["{OTHER}"])
    print("{OTHER} is free")
    for _ in range(2):
        try:
            await unrecorded.look(["{ADDRESS}"])
            await unrecorded.refuse_if_used("firewall", ["{ADDRESS}"])
        except AddressInUse as exc:
            print(exc)

asyncio.run(look())
"""


@pytest.mark.usefixtures("sandbox")
def test_a_namespace_that_cannot_be_read(tmp_path: Path) -> None:
    """It is logged once, and does not keep the DEL of others from running; what the others have is seen."""
    unshared = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
    command = [*unshared, "sh", "-c", PREPARE, "sh", sys.executable, "-c", LOOK]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"{OTHER} is free" in done.stdout
    assert done.stdout.count(f"endpoint {ATTACHMENT} has no record and has the same address") == 2
    assert done.stdout.count("teardown.namespaces_unread") == 1
    assert "cannot enter namespace: Operation not permitted" in done.stdout


class Crowded(Kernel):
    """A host with so many namespaces that the second look at them does not end."""

    reads = 0

    async def addresses_by_altname(self, _besides: Path) -> MarkedAddresses:
        """Return the link of an endpoint without a record."""
        self.reads += 1
        if self.reads > 1:
            await asyncio.Event().wait()
        return MarkedAddresses(by_altname={alternative_name(ATTACHMENT): frozenset({ADDRESS})}, unread=())


async def test_a_del_beside_another_look(store: Store, tmp_path: Path) -> None:
    """It does not wait: it holds a plugin slot, which others need."""
    unrecorded = UnrecordedLinks(store, Crowded(reply_limit_s=5.0), tmp_path / "run")
    await unrecorded.look([ADDRESS])
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        again = tasks.create_task(unrecorded.look([ADDRESS]))
        await asyncio.sleep(0)
        await unrecorded.refuse_if_used("firewall", [OTHER])
        with pytest.raises(AddressInUse):
            await unrecorded.refuse_if_used("firewall", [ADDRESS])
        again.cancel()
